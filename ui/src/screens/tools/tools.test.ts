import { describe, expect, it } from "vitest";
import type { ServerView, Tool } from "@/api/types";
import { textOf } from "./Answer";
import { frameLines } from "./frame-lines";
import { failureRate, groups, milliseconds, observedOf, rollbackOf, rowsOf } from "./rows";
import { newRunId } from "./use-call";

const tool = (id: string, more: Partial<Tool> = {}): Tool => ({ id, description: `Does ${id}`, input_schema: {}, output_schema: null, annotations: {}, scopes: [], tags: [], effect: "reads", rollback: null, confirms: false, hash: "", ...more });
const server = (name: string, state: ServerView["state"], reason: string | null = null): ServerView => ({ name, kind: "mcp", state, reason, tools: 0, protocol: null, version: null, transport: null, stderr: [] });

describe("servers and tools", () => {
  const all = groups([server("github", "ready"), server("slack", "failed", "exited")], [tool("github:b"), tool("github:a", { tags: ["release"] }), tool("builtin:x", { effect: "destroys" })]);
  const keys = (q: string | undefined, open = true) => rowsOf(all, q, () => open).map((row) => row.key);
  it("shows what is down first, and tools of unknown servers too", () => {
    expect(keys(undefined)).toEqual(["server slack", "reason slack", "server builtin", "builtin:x", "server github", "github:b", "github:a"]);
    expect(keys(undefined, false)).toEqual(["server slack", "reason slack", "server builtin", "server github"]);
  });
  it("opens what a search finds: names, words, effects, tags, servers", () => {
    expect(keys("destroys", false)).toEqual(["server builtin", "builtin:x"]);
    expect(keys("release", false)).toEqual(["server github", "github:a"]);
    expect(keys("slack", false)).toEqual(["server slack", "reason slack"]);
    expect(keys("nothing")).toEqual([]);
  });
  it("reads how a tool is rolled back, and what was measured", () => {
    expect([null, "none", { tool: "a:b", parameters: {} }, { impossible: "sent" }].map((one) => rollbackOf(one).kind)).toEqual(["unknown", "not_needed", "call", "impossible"]);
    expect(observedOf(tool("a:b", { observed: { calls: 1120, failures: 20, p50_ms: 5, p95_ms: 21 } }))).toEqual({ calls: 1120, failures: 20, p50: 5, p95: 21 });
    expect(observedOf(tool("a:b"))).toBeNull();
    const rate = (failures: number, calls: number) => failureRate({ calls, failures, p50: null, p95: null });
    expect([rate(20, 1120), rate(0, 5), rate(1, 9999), rate(0, 0)]).toEqual(["1.8 % of 1,120", "0 % of 5", "< 0.1 % of 9,999", "never called"]);
    expect([5, 999.4, 1250, 12_500].map(milliseconds)).toEqual(["5 ms", "999 ms", "1.25 s", "12.5 s"]);
  });
});

describe("a call", () => {
  it("makes a new id for each call", () => {
    const [one, two] = [newRunId(), newRunId()];
    expect(one).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(two).not.toBe(one);
  });
  it("shows text where the output is text", () => {
    expect(textOf("a")).toBe("a");
    expect(textOf({ content: [{ type: "text", text: "a" }, { type: "text", text: "b" }] })).toBe("a\nb");
    expect(textOf({ content: [{ type: "image", data: "" }] })).toBeNull();
    expect(textOf({ content: "x" })).toBeNull();
    expect(textOf(null)).toBeNull();
  });
  it("has its messages in words", () => {
    const at = (ms: number) => new Date(1000 + ms).toISOString();
    const lines = frameLines([
      { direction: "sent", at: at(0), message: { jsonrpc: "2.0", id: 17, method: "tools/call", params: { name: "edit" } } },
      { direction: "received", at: at(2), message: { method: "notifications/progress", params: { progress: 1, total: 2, message: "read" } } },
      { direction: "received", at: at(6), message: { id: 17, result: { content: [{}], isError: true } } },
      { direction: "received", at: at(7), message: { id: 18, error: { code: -32602, message: "no" } } },
      { direction: "received", at: at(8), message: "{\"long" },
      { direction: "received", at: at(9), message: null },
    ]);
    expect(lines.map((line) => `${line.at} ${line.what}: ${line.about}`)).toEqual(["0 tools/call: id 17, edit", "2 notifications/progress: 1 of 2, read", "6 result: id 17, isError true, content[1]", "7 error: id 18, -32602, no", "8 long message: cut by the server", "9 message: "]);
  });
});
