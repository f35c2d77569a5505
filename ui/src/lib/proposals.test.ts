import { describe, expect, it } from "vitest";
import type { PlanStepView } from "@/api/types";
import { unknowns, type PlanDetails } from "../screens/plans/queries";
import { sourceOf, use } from "../screens/templates/queries";
import { planRows } from "./plan-rows";

const step = (id: string, more: Partial<PlanStepView> = {}): PlanStepView => ({
  id,
  kind: "call",
  tool: "a:b",
  needs: [],
  effect: "reads",
  rollback: { kind: "not_needed" },
  confirms: false,
  ...more,
});

describe("rows of a plan", () => {
  it("puts the steps of a body after its label, deeper", () => {
    const rows = planRows([step("loop", { kind: "for_each", tool: null, bodies: [{ label: "each", steps: [step("inner")] }] }), step("end")]);
    expect(rows.map((row) => [row.kind, row.depth, row.kind === "step" ? row.step.id : row.label])).toEqual([
      ["step", 0, "loop"],
      ["body", 1, "each"],
      ["step", 2, "inner"],
      ["step", 0, "end"],
    ]);
    expect(new Set(rows.map((row) => row.key)).size).toBe(rows.length);
  });
});

describe("what to know before accepting a plan", () => {
  const details = (steps: PlanStepView[] | null, warnings: string[] = []) => ({ warnings, checked: steps && { steps } }) as unknown as PlanDetails;
  it("is nothing for a plan that only reads", () => expect(unknowns(details([step("read")]))).toEqual([]));
  it("names steps that destroy, are unknown, or stay, also inside bodies", () => {
    const inner = step("drop", { effect: "destroys", rollback: { kind: "impossible", reason: "gone" } });
    const said = unknowns(details([step("loop", { bodies: [{ label: "each", steps: [inner] }] }), step("odd", { effect: "unknown", rollback: { kind: "unknown" } })], ["order"]));
    expect(said[0]).toBe("order");
    expect(said[1]).toContain("Destroys something: drop.");
    expect(said[2]).toContain("unknown: odd.");
    expect(said[3]).toBe("Cannot be rolled back: drop, odd.");
  });
  it("says first that it does not fit the tools", () => expect(unknowns(details(null, ["w"]))[0]).toContain("does not fit"));
});

describe("a template", () => {
  const meta = { category: "c", tags: [], estimated_duration_ms: null };
  it("says how often it was used and succeeded", () => {
    expect(use({ ...meta, usage_count: 0, success_rate: null })).toBe("never used");
    expect(use({ ...meta, usage_count: 1, success_rate: 1 })).toBe("1 run, 100 % succeeded");
    expect(use({ ...meta, usage_count: 1200, success_rate: 0.945 })).toBe("1,200 runs, 95 % succeeded");
  });
  it("shows text as written and objects as JSON", () => {
    expect(sourceOf("name: a\n")).toEqual({ text: "name: a\n", format: "yaml" });
    expect(sourceOf({ a: 1 })?.format).toBe("json");
    expect(sourceOf(undefined)).toBeNull();
  });
});
