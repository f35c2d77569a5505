import { describe, expect, it } from "vitest";
import type { StepDetail, StepView } from "@/api/types";
import { barsOf, barsWithin, moved, tickText, ticks, zoomed } from "./scale";

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
      expect(ticks({ from: 0, to: total }).length).toBeGreaterThanOrEqual(2);
      expect(ticks({ from: 0, to: total }).length).toBeLessThanOrEqual(9);
    }
    expect(ticks({ from: 0, to: 38_400 })).toEqual([0, 5000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000]);
    expect([tickText(5000, 38_400), tickText(90_000, 300_000), tickText(7_200_000, 9_000_000)]).toEqual(["5 s", "1:30", "2 h"]);
  });
  it("marks the part that is shown", () => {
    expect(ticks({ from: 61_205, to: 61_262 })).toEqual([61_210, 61_220, 61_230, 61_240, 61_250, 61_260]);
    expect(tickText(61_210, 57)).toBe("61.21 s");
  });
  it("zooms around a place, and not beyond the run", () => {
    const inwards = zoomed({ from: 0, to: 900 }, 900, true, 0.5);
    expect(inwards).toEqual({ from: 150, to: 750 });
    // The place under the pointer stays under it.
    expect(zoomed({ from: 0, to: 900 }, 900, true, 1)).toEqual({ from: 300, to: 900 });
    expect(zoomed({ from: 300, to: 700 }, 900, false, 0)).toEqual({ from: 300, to: 900 });
    expect(zoomed({ from: 150, to: 750 }, 900, false, 0.5)).toBeNull();
    let span = { from: 0, to: 900 };
    for (let i = 0; i < 50; i++) span = zoomed(span, 900, true, 0.5) ?? span;
    expect(Math.round(span.to - span.from)).toBe(5);
    expect(zoomed({ from: 0, to: 1 }, 1, true, 0.5)).toBeNull();
    expect(moved({ from: 150, to: 750 }, 900, true)).toEqual({ from: 300, to: 900 });
    expect(moved({ from: 150, to: 750 }, 900, false)).toEqual({ from: 0, to: 600 });
  });
  it("cuts bars at the edges", () => {
    const bars = [{ kind: "wait", from: 0, to: 10 }, { kind: "run", from: 10, to: 50 }, { kind: "back", from: 90, to: 95 }] as const;
    expect(barsWithin([...bars], { from: 20, to: 40 })).toEqual([{ kind: "run", from: 20, to: 40 }]);
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
