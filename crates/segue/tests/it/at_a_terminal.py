"""Runs a program at a terminal of its own and types a line whenever it waits for one.

at_a_terminal.py LINES PROGRAM ARGS...: LINES are separated by `|`; a line is typed after each `] ` or `): ` that is shown last.
A first line that begins with `^` is typed at once, before anything is asked.
A first line `@TEXT@LINE` is typed when TEXT has been shown.
Of `COMMAND!!LINE` the command is executed first, and an empty LINE is not typed.
What was shown is printed; the exit code is the program's. Needs only Python 3."""
import fcntl, os, pty, signal, struct, subprocess, sys, termios

lines = sys.argv[1].split("|")
# A program that waits for ever must not hang its test.
signal.alarm(60)
pid, terminal = pty.fork()
if pid == 0:
    # 30 rows of 80 columns.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
if lines[0].startswith("^"):
    os.write(terminal, lines.pop(0)[1:].encode() + b"\n")
awaited, typed = None, None
if lines and lines[0].startswith("@"):
    awaited, typed = (part.encode() for part in lines.pop(0)[1:].split("@", 1))
shown = since = b""
while True:
    try:
        some = os.read(terminal, 4096)
    except OSError:
        break
    if not some:
        break
    shown += some
    since += some
    if awaited and awaited in shown:
        os.write(terminal, typed)
        awaited = None
    if since.rstrip(b"\x1b[0m").endswith((b"] ", b"): ")):
        since = b""
        if not lines:
            # Whoever has no more to say ends the input.
            os.write(terminal, b"\x04")
            continue
        command, has_command, line = lines.pop(0).rpartition("!!")
        if has_command:
            subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if line or not has_command:
            os.write(terminal, line.encode() + b"\n")
sys.stdout.buffer.write(shown)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
