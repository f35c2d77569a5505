import { afterEach, describe, expect, it, vi } from "vitest";
import { queryClient } from "@/api/queries";
import type { PlanView, Question, RunView } from "@/api/types";
import { pieces } from "@/parts/WholeText";
import { ChangedQuestion, sendAnswer } from "./send-answer";
import { fateOf, names, wordsOf } from "./words";

const question = (kind: string, more: Partial<Question["question"]> = {}): Question => ({
  run_id: "r1", name: "cleanup", principal: "bot", asked_at: "2026-01-01T00:00:00Z", expires_at: null, approvers_needed: null, answerable: true, not_answerable_because: null,
  question: { step: "delete", kind, tool: "github:delete_branch", message: "may it?", args: { branch: "a" }, ...more },
});

interface Sent {
  path: string;
  body: unknown;
}
/** Answers the list of questions with `open`, and notes every other request. */
function server(open: Question[]): Sent[] {
  const sent: Sent[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    const path = new URL(request.url).pathname;
    if (request.method !== "GET") sent.push({ path, body: await request.json() });
    return new Response(JSON.stringify(path.endsWith("/questions") ? { questions: open } : {}), { headers: { "Content-Type": "application/json" } });
  });
  return sent;
}
afterEach(() => {
  vi.unstubAllGlobals();
  queryClient.clear();
});

describe("answers", () => {
  it("names the step and sends the data of a yes only", async () => {
    const asked = question("approval");
    const sent = server([asked]);
    await sendAnswer(asked, true, { copies: 3 });
    await sendAnswer(asked, false, { copies: 3 });
    expect(sent).toEqual([
      { path: "/api/v1/runs/r1/approve", body: { approved: true, step: "delete", data: { copies: 3 } } },
      { path: "/api/v1/runs/r1/approve", body: { approved: false, step: "delete" } },
    ]);
  });
  it("says what became of a call in doubt", async () => {
    const asked = question("doubt");
    const sent = server([asked]);
    await sendAnswer(asked, true, { id: 7 });
    await sendAnswer(asked, false, undefined);
    expect(sent).toEqual([
      { path: "/api/v1/runs/r1/resume", body: { assume: "done", step: "delete", value: { id: 7 } } },
      { path: "/api/v1/runs/r1/resume", body: { assume: "failed", step: "delete" } },
    ]);
  });
  it("does not answer a question that is not the one on screen", async () => {
    const sent = server([question("call", { args: { branch: "main" } })]);
    await expect(sendAnswer(question("call"), true, undefined)).rejects.toThrow("has changed");
    server([]);
    await expect(sendAnswer(question("call"), true, undefined)).rejects.toBeInstanceOf(ChangedQuestion);
    expect(sent).toEqual([]);
  });
});

describe("consequences", () => {
  const step = (id: string, effect: string, kind: string, more = {}) => ({ id, kind: "tool", tool: "x:y", needs: [], effect, rollback: { kind, tool: "x:undo", reason: "" }, confirms: false, ...more });
  const plan = (rolls: boolean) =>
    ({ steps: [step("read", "reads", "not_needed"), step("write", "writes", "call"), step("each", "writes", "inside", { kind: "loop", tool: null, bodies: [{ label: "", steps: [step("put", "writes", "call")] }] }), step("mail", "unknown", "impossible")], error_handling: { failure_strategy: "stop", rollback_on_failure: rolls, max_retries: null } }) as unknown as PlanView;
  const done = (id: string, at: string) => ({ id, tool: "x:y", status: "success", completed_at: at });
  const run = { steps: [done("read", "1"), done("write", "2"), done("each[0]/put", "3"), done("each[1]/put", "4"), done("mail", "5"), { ...done("late", "6"), status: "running" }] } as unknown as RunView;
  it("lists what is rolled back, last first, and what stays", () => {
    expect(fateOf(plan(true), run)).toEqual({ rollsBack: true, back: ["each[1]/put", "each[0]/put", "write"], stay: ["mail"] });
    expect(fateOf(plan(false), run)).toEqual({ rollsBack: false, back: [], stay: ["mail", "each[1]/put", "each[0]/put", "write"] });
  });
  it("has its own words for each kind", () => {
    expect(["run", "call", "doubt", "approval"].map((kind) => wordsOf(question(kind)).yes)).toEqual(["Allow this run", "Allow this call", "It did its work", "Approve"]);
    expect(wordsOf(question("approval", { schema: {} })).yes).toBe("Send and go on");
  });
  it("shortens long lists of names", () => {
    expect(names(["a", "b", "c"], 2)).toBe("a, b and 1 more");
  });
});

describe("whole texts", () => {
  it("are pieces that together are the text", () => {
    const text = `${"line\n".repeat(30)}${"x".repeat(70)}🎉${"y".repeat(50)}`;
    for (const most of [7, 10, 64]) {
      const parts = pieces(text, most);
      expect(parts.join("")).toBe(text);
      expect(parts.every((part) => part.length <= most && !/^[\udc00-\udfff]/.test(part))).toBe(true);
    }
  });
});
