// The installed program: whether it can be started, and what to say if not.

import { execFile } from "node:child_process";

/** How the program answered. */
export interface Answer {
  code: number;
  stdout: string;
  stderr: string;
}

/** Why a program could not be started. */
export class NotStarted extends Error {
  constructor(
    readonly program: string,
    readonly reason: string | undefined,
  ) {
    super(missingMessage(program, reason));
  }
}

/** The message for a person whose program is missing; the buttons beside it are the fix. */
export function missingMessage(program: string, reason?: string): string {
  switch (reason) {
    case "ENOENT":
      return `The program \`${program}\` is not installed, or not on the PATH of the editor. Install Segue, or set \`segue.path\` to where it is.`;
    case "EACCES":
      return `\`${program}\` may not be executed. Make it executable, or set \`segue.path\` to another program.`;
    case "TOO OLD":
      return `\`${program}\` has no language server: it is older than this extension. Install a newer Segue, or set \`segue.path\` to one.`;
    default:
      return `\`${program}\` could not be started${reason ? ` (${reason})` : ""}. Set \`segue.path\` to an installed Segue.`;
  }
}

const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;

/** Runs the program without a shell, and waits for it. */
export function run(program: string, args: string[], folder: string | undefined, timeoutMs: number): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const options = { cwd: folder, timeout: timeoutMs, maxBuffer: OUTPUT_BYTES_MAX, windowsHide: true };
    execFile(program, args, options, (error, stdout, stderr) => {
      const code = error?.code;
      if (typeof code === "string") {
        reject(new NotStarted(program, code));
      } else if (error?.killed) {
        reject(new Error(`\`${program} ${args.join(" ")}\` took longer than ${timeoutMs / 1000} s`));
      } else {
        resolve({ code: typeof code === "number" ? code : error ? 1 : 0, stdout, stderr });
      }
    });
  });
}

/** Whether the program is a Segue with a language server. Throws why not. */
export async function check(program: string): Promise<void> {
  const answer = await run(program, ["lsp", "--help"], undefined, 20_000);
  if (answer.code !== 0) throw new NotStarted(program, "TOO OLD");
}
