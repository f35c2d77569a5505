import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Analyzer, PAUSE_MS } from "./analyzer";
import { BuilderDocument } from "./document";
import type { Analysis, Finding } from "./model";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const step = (id: string) => ({ id, kind: "tool", tool: "a:b", needs: [], effect: "reads", rollback: { kind: "not_needed" }, confirms: false }) as Analysis["steps"][number];
const analysis = (more: Partial<Analysis> = {}): Analysis => ({ hash: "", valid: true, findings: [], steps: [step("a")], spans: [{ step: "a", start: 2, end: 5 }], tokens: [], ...more });
const finding = (start: number, end: number) => ({ start, end, severity: "error", message: "m", code: "limit" }) as Finding;

/** A server that answers when it is told to. */
function server() {
  const asked: { text: string; answer: (analysis: Analysis) => void; fail: (error: Error) => void; signal: AbortSignal | undefined }[] = [];
  const analyze = (text: string, _: string | null, signal?: AbortSignal) => new Promise<Analysis>((answer, fail) => asked.push({ text, answer, fail, signal }));
  return { asked, analyze };
}
const type = (document: BuilderDocument, at: number, text: string) => document.dispatch({ changes: { from: at, insert: text }, userEvent: "input.type" });
const pause = () => vi.advanceTimersByTimeAsync(PAUSE_MS);

describe("the analysis of a text that is typed", () => {
  it("is asked for once per pause, and answers to older texts are dropped", async () => {
    const { asked, analyze } = server();
    const document = new BuilderDocument("text", "text");
    const analyzer = new Analyzer(document, { analyze }, null);
    await pause();
    type(document, 4, "1");
    type(document, 5, "2");
    await pause();
    expect(asked.map((one) => one.text)).toEqual(["text", "text12"]);
    expect(asked[0]?.signal?.aborted).toBe(true);
    asked[1]?.answer(analysis());
    asked[0]?.answer(analysis({ valid: false, findings: [finding(0, 1)] }));
    await pause();
    expect(analyzer.snapshot()).toMatchObject({ current: true, analysis: { valid: true, findings: [] } });
    type(document, 6, "3");
    await pause();
    type(document, 7, "4");
    asked[2]?.answer(analysis({ valid: false }));
    await vi.advanceTimersByTimeAsync(0);
    expect(analyzer.snapshot()).toMatchObject({ current: false, analysis: { valid: true } });
  });

  it("moves its places with the text until the next answer", async () => {
    const { asked, analyze } = server();
    const document = new BuilderDocument("abcdefgh", "abcdefgh");
    const analyzer = new Analyzer(document, { analyze }, null);
    await pause();
    asked[0]?.answer(analysis({ findings: [finding(4, 5)] }));
    await pause();
    type(document, 0, "xx");
    expect(analyzer.snapshot().analysis?.spans).toEqual([{ step: "a", start: 4, end: 7 }]);
    expect(analyzer.snapshot().analysis?.findings[0]).toMatchObject({ start: 6, end: 7 });
    // What is typed at the end of a step belongs to it.
    type(document, 7, "y");
    expect(analyzer.snapshot().analysis?.spans).toEqual([{ step: "a", start: 4, end: 8 }]);
  });

  it("keeps the steps of before when the text cannot be read, and the same steps as the same object", async () => {
    const { asked, analyze } = server();
    const document = new BuilderDocument("a", "a");
    const analyzer = new Analyzer(document, { analyze }, null);
    await pause();
    asked[0]?.answer(analysis());
    await pause();
    const { steps } = analyzer.snapshot().analysis ?? { steps: [] };
    type(document, 1, "b");
    await pause();
    asked[1]?.answer(analysis({ valid: false, steps: [] }));
    await pause();
    expect(analyzer.snapshot().analysis?.steps).toBe(steps);
    type(document, 1, "b");
    await pause();
    asked[2]?.answer(analysis());
    await pause();
    expect(analyzer.snapshot().analysis?.steps).toBe(steps);
    type(document, 1, "b");
    await pause();
    asked[3]?.answer(analysis({ steps: [] }));
    await pause();
    expect(analyzer.snapshot().analysis?.steps).toEqual([]);
  });

  it("says when the server does not answer, and goes on with the next change", async () => {
    const { asked, analyze } = server();
    const document = new BuilderDocument("a", "a");
    const analyzer = new Analyzer(document, { analyze }, null);
    await pause();
    asked[0]?.fail(new Error("down"));
    await pause();
    expect(analyzer.snapshot().error).toEqual(new Error("down"));
    type(document, 1, "b");
    await pause();
    asked[1]?.answer(analysis());
    await pause();
    expect(analyzer.snapshot()).toMatchObject({ error: null, current: true });
  });
});
