import { describe, expect, it } from "vitest";
import { EventStream, type StepEvent } from "./events";
import { accepts, applyStep, mergeRun } from "./live";
import type { RunList, RunSummary, RunView } from "./types";

class FakeSource extends EventTarget {
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  readyState = 1;
  closed = false;
  constructor(readonly url: string) {
    super();
  }
  close(): void {
    this.closed = true;
  }
  say(kind: string, data: unknown, id = ""): void {
    this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(data), lastEventId: id }));
  }
}

function made() {
  const sources: FakeSource[] = [];
  const stream = new EventStream((url) => {
    const source = new FakeSource(url);
    sources.push(source);
    return source as unknown as EventSource;
  });
  return { stream, sources, last: () => sources.at(-1) as FakeSource };
}

describe("event stream", () => {
  it("opens one stream for several runs and continues after the last event", async () => {
    const { stream, sources, last } = made();
    stream.start();
    expect(last().url).toBe("/api/v1/events");
    last().say("questions", { count: 1 }, "17");
    const off = stream.watch("b", 4);
    stream.watch("a", 0);
    await Promise.resolve();
    expect(sources).toHaveLength(2);
    expect(sources[0]?.closed).toBe(true);
    expect(last().url).toBe("/api/v1/events?run=a%400&run=b%404&after=17");
    off();
    await Promise.resolve();
    expect(last().url).toBe("/api/v1/events?run=a%400&after=17");
  });
  it("hands on what it hears, and says whether it is live", () => {
    const { stream, last } = made();
    const heard: number[] = [];
    stream.on("questions", ({ count }) => heard.push(count));
    stream.start();
    expect(stream.current()).toBe("connecting");
    last().say("ready", {});
    last().say("questions", { count: 3 });
    last().dispatchEvent(new MessageEvent("questions", { data: "not JSON" }));
    expect([stream.current(), heard]).toEqual(["live", [3]]);
    last().onerror?.();
    expect(stream.current()).toBe("lost");
    stream.stop();
    expect(last().closed).toBe(true);
  });
});

const run = (id: string, started_at: string, status: RunSummary["status"] = "running"): RunSummary => ({ run_id: id, name: "n", status, success: false, started_at, completed_at: null, duration_ms: 0, plan_hash: "", interrupted: false });

describe("list of runs", () => {
  const pages: RunList[] = [{ runs: [run("c", "3"), run("a", "1")], next: "x" }, { runs: [run("z", "0")] }];
  it("takes a new run at its place, and changes one that it shows", () => {
    expect(mergeRun(pages, run("b", "2"), () => true)[0]?.runs.map((one) => one.run_id)).toEqual(["c", "b", "a"]);
    const changed = mergeRun(pages, run("z", "0", "failed"), () => true);
    expect(changed[1]?.runs[0]?.status).toBe("failed");
    expect(changed[0]).toBe(pages[0]);
  });
  it("drops a run that no longer fits, and ignores one that never did", () => {
    expect(mergeRun(pages, run("a", "1", "success"), () => false)[0]?.runs.map((one) => one.run_id)).toEqual(["c"]);
    expect(mergeRun(pages, run("q", "9"), () => false)).toBe(pages);
  });
  it("filters as the server does", () => {
    expect(accepts({ status: ["failed"] }, run("a", "1"))).toBe(false);
    expect(accepts({ status: ["failed", "running"], name: "n" }, run("a", "1"))).toBe(true);
    expect(accepts({ tool: "x:y" }, run("a", "1"))).toBe(false);
    expect(accepts({ since_ms: Date.parse("2026-01-02") }, run("a", "2026-01-01T00:00:00Z"))).toBe(false);
  });
});

describe("a step's event", () => {
  const view = { entries: 5, steps: [{ id: "a", status: "pending", started_at: null, completed_at: null }] } as unknown as RunView;
  const event = (seq: number, kind: string): StepEvent => ({ run_id: "r", seq, event: kind, at_ms: 0, step: "a", detail: null });
  it("is shown at once", () => {
    const next = applyStep(view, event(5, "step_started"));
    expect(next.steps[0]).toMatchObject({ status: "running", started_at: "1970-01-01T00:00:00.000Z" });
  });
  it("does not undo what was read already", () => {
    expect(applyStep(view, event(4, "step_started"))).toBe(view);
    expect(applyStep(view, event(6, "something_new"))).toBe(view);
  });
});
