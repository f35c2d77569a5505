import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { requiredInputs } from "../src/commands";
import { NotStarted, check, missingMessage, run } from "../src/program";

test("a missing program has a message that says what to do", async () => {
  await assert.rejects(check("segue-that-is-not-there"), (error: unknown) => {
    assert.ok(error instanceof NotStarted);
    assert.match(error.message, /not installed.*`segue\.path`/s);
    return true;
  });
});

test("each reason has a fix in its message", () => {
  for (const reason of ["ENOENT", "EACCES", "TOO OLD", "EOTHER", undefined]) {
    assert.match(missingMessage("segue", reason), /segue\.path/);
  }
});

test("a program without a language server is too old", async () => {
  await assert.rejects(check(process.execPath), /older than this extension|has no language server/);
});

test("what a program says is kept, with its code, and no shell reads its arguments", async () => {
  const folder = mkdtempSync(join(tmpdir(), "segue-vscode-"));
  try {
    const script = join(folder, "echo.mjs");
    writeFileSync(script, "console.log(process.argv[2]); console.error('e'); process.exit(3)");
    chmodSync(script, 0o700);
    const answer = await run(process.execPath, [script, "$(id); `id` && x"], folder, 20_000);
    assert.deepEqual(answer, { code: 3, stdout: "$(id); `id` && x\n", stderr: "e\n" });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the installed program can be started", { skip: process.env["SEGUE_BIN"] === undefined }, async () => {
  const program = process.env["SEGUE_BIN"] ?? "";
  await check(program);
  const folder = mkdtempSync(join(tmpdir(), "segue-vscode-"));
  try {
    const file = join(folder, "a.yaml");
    writeFileSync(file, "name: a\ninput: { required: [x], properties: { x: { type: string } } }\nsteps:\n  - { id: s, tool: builtin:echo, parameters: { text: x } }\n");
    const plan = await run(program, ["plan", file, "--json"], folder, 60_000);
    assert.deepEqual(requiredInputs(JSON.parse(plan.stdout)), [{ name: "x", type: "string", description: "" }]);
    const drawn = await run(program, ["plan", file, "--format", "svg"], folder, 60_000);
    assert.equal(drawn.code, 0, drawn.stderr);
    assert.match(drawn.stdout, /^<svg/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
