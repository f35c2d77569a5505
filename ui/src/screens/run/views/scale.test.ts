import { describe, expect, it } from "vitest";
import type { StepDetail, StepView } from "@/api/types";
import { barsOf, tickText, ticks } from "./scale";

const at = (s: number) => new Date(s * 1000).toISOString();
const view = { status: "rolled_back", started_at: at(10), completed_at: at(16), attempts: 2 } as StepView;
const detail = {
  attempts: [
    { started_at: at(10), duration_ms: 2000, outcome: "failed", pause_ms: 1000 },
    { started_at: at(13), duration_ms: 3000, outcome: "done" },
  ],
  rollback: { events: [{ at: at(30), what: "called" }, { at: at(31), what: "rolled_back" }] },
} as unknown as StepDetail;

describe("scale", () => {
  it("has few marks whatever the length", () => {
    for (const total of [3, 900, 38_400, 300_000, 9_000_000, 1e9]) {
      expect(ticks(total).length).toBeGreaterThanOrEqual(2);
      expect(ticks(total).length).toBeLessThanOrEqual(9);
    }
    expect(ticks(38_400)).toEqual([0, 5000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000]);
    expect([tickText(5000, 38_400), tickText(90_000, 300_000), tickText(7_200_000, 9_000_000)]).toEqual(["5 s", "1:30", "2 h"]);
  });
  it("tells waiting, attempts, pauses and rollback apart", () => {
    expect(barsOf(view, detail, 8000, false, 40_000)).toEqual([
      { kind: "wait", from: 8000, to: 10_000 },
      { kind: "fail", from: 10_000, to: 12_000 },
      { kind: "pause", from: 12_000, to: 13_000 },
      { kind: "run", from: 13_000, to: 16_000 },
      { kind: "back", from: 30_000, to: 31_000 },
    ]);
  });
  it("draws a running step to now, and a question as waiting", () => {
    const running = { status: "running", started_at: at(10), completed_at: null } as StepView;
    expect(barsOf(running, undefined, null, false, 12_000)).toEqual([{ kind: "live", from: 10_000, to: 12_000 }]);
    expect(barsOf(running, undefined, null, true, 12_000)).toEqual([{ kind: "wait", from: 10_000, to: 12_000 }]);
    expect(barsOf(undefined, undefined, 1000, false, 12_000)).toEqual([]);
  });
});
