import { describe, expect, it } from "vitest";
import type { RunView } from "@/api/types";
import { asCommand, asCurl, asMcpCall, shellWord } from "./copy-as";
import { hasCut } from "@/lib/json-rows";

const run = { run_id: "r1", name: "triage" } as RunView;

describe("copy as", () => {
  it("quotes for a shell", () => {
    expect(shellWord("plain-1.0")).toBe("plain-1.0");
    expect(shellWord("it's $HOME; rm")).toBe(`'it'\\''s $HOME; rm'`);
  });
  it("writes the command of a run and of a step", () => {
    expect(asCommand(run, { a: "x y" }, null)).toBe(`segue run triage --input '{"a":"x y"}'`);
    expect(asCommand(run, {}, null)).toBe("segue run triage");
    expect(asCommand(run, {}, "each[2]/b")).toBe("segue run --from 'each[2]/b' --run r1");
  });
  it("writes curl and an MCP call", () => {
    expect(asCurl(run, { a: 1 }, null, "http://h")).toContain(`-d '{"name":"triage","input":{"a":1}}'`);
    expect(asCurl(run, {}, "b", "http://h")).toContain("http://h/api/v1/runs/r1/rerun");
    expect(JSON.parse(asMcpCall(run, { a: 1 }))).toMatchObject({ method: "tools/call", params: { name: "triage", arguments: { a: 1 } } });
  });
  it("writes the same part of the composition", () => {
    const part = { ...run, part: { until: "b c", pinned: ["a"] }, steps: [{ id: "a", output: { n: 1 } }] } as unknown as RunView;
    expect(asCommand(part, {}, null)).toBe("segue run triage --until 'b c' --mocks triage.test.yaml");
    expect(asCurl(part, {}, null, "http://h")).toContain(`{"name":"triage","input":{},"until":"b c","mocks":{"a":{"returns":{"n":1}}}}`);
    expect(JSON.parse(asMcpCall(part, {})).params).toEqual({ name: "composition_execute", arguments: { name: "triage", input: {}, until: "b c", mocks: { a: { returns: { n: 1 } } } } });
    expect(asCommand({ ...run, part: { only: "a", run: "r0" } } as unknown as RunView, {}, null)).toBe("segue run triage --only a --run r0");
  });
  it("knows when a value is not whole", () => {
    expect(hasCut({ a: [{ $cut: { kind: "string", bytes: 9, length: 9, preview: "" } }] })).toBe(true);
    expect(hasCut({ a: [1, null, "x"] })).toBe(false);
  });
});
