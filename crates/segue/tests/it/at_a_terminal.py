"""Runs a program at a terminal of its own and types a line whenever it waits for one.

at_a_terminal.py LINES PROGRAM ARGS...: LINES are separated by `|`; a line is typed after each `] ` or `): ` that is shown last.
What was shown is printed; the exit code is the program's. Needs only Python 3."""
import os, pty, sys

lines = sys.argv[1].split("|")
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
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
    if since.rstrip(b"\x1b[0m").endswith((b"] ", b"): ")):
        # Whoever has no more to say ends the input.
        os.write(terminal, lines.pop(0).encode() + b"\n" if lines else b"\x04")
        since = b""
sys.stdout.buffer.write(shown)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
