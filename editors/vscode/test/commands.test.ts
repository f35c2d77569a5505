import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { LENS_COMMANDS, argumentsOf, requiredInputs } from "../src/commands";

test("each command has the arguments that the program reads", () => {
  assert.deepEqual(argumentsOf("segue.run", "/a b.yaml"), ["run", "/a b.yaml"]);
  assert.deepEqual(argumentsOf("segue.dryRun", "/a.yaml"), ["run", "/a.yaml", "--dry-run"]);
  assert.deepEqual(argumentsOf("segue.test", "/a.test.yaml"), ["test", "/a.test.yaml"]);
  assert.deepEqual(argumentsOf("segue.test", "/a.test.yaml", "says hello"), ["test", "/a.test.yaml", "--filter", "says hello"]);
  assert.throws(() => argumentsOf("segue.other", "/a.yaml"));
});

test("the inputs without a default are asked for", () => {
  const inputs = {
    required: ["name", "count"],
    properties: { name: { type: "string", description: "Whose" }, count: {}, other: { type: "string" } },
  };
  assert.deepEqual(requiredInputs({ inputs }), [
    { name: "name", type: "string", description: "Whose" },
    { name: "count", type: "any", description: "" },
  ]);
  for (const plan of [null, 7, {}, { inputs: true }, { inputs: { required: "x" } }]) {
    assert.deepEqual(requiredInputs(plan), []);
  }
});

test("the manifest declares every command, and a workspace cannot choose the program", () => {
  const manifest = JSON.parse(readFileSync("package.json", "utf8"));
  const declared = manifest.contributes.commands.map((it: { command: string }) => it.command);
  for (const command of LENS_COMMANDS) assert.ok(declared.includes(command), command);
  const source = readFileSync("src/extension.ts", "utf8");
  for (const command of declared) assert.ok(source.includes(`"${command}"`), command);
  const { properties } = manifest.contributes.configuration;
  assert.equal(properties["segue.path"].scope, "machine");
  assert.equal(properties["segue.arguments"].scope, "machine");
});
