import { describe, expect, it } from "vitest";
import type { PlanStepView, PlanView, RunView, StepPage, StepView } from "@/api/types";
import { cellsOf, looksOf } from "./looks";
import { buildModel, defaultItem, topological } from "./model";
import { railOf } from "./rollback";
import { rowsOf } from "./rows";

const planStep = (id: string, more: Partial<PlanStepView> = {}): PlanStepView => ({ id, kind: "tool", tool: `t:${id}`, needs: [], effect: "reads", rollback: { kind: "not_needed" }, confirms: false, ...more });
const view = (id: string, status: StepView["status"], more: Partial<StepView> = {}): StepView => ({
  id, kind: "tool", tool: "t:x", status, attempts: 1, input: null, output: null, error: null, reason: null,
  started_at: "2026-01-01T00:00:00Z", completed_at: status === "running" ? null : "2026-01-01T00:00:01Z", duration_ms: 1000, ...more,
});
const planOf = (steps: PlanStepView[]) => ({ name: "p", steps }) as unknown as PlanView;
const runOf = (steps: StepView[], more: Partial<RunView> = {}) => ({ run_id: "r", status: "running", steps, ...more }) as unknown as RunView;
const loopPlan = planOf([planStep("each", { kind: "loop", tool: null, bodies: [{ label: "each x", steps: [planStep("a"), planStep("b")] }] })]);
const item = (i: number, b: StepView["status"]) => [view(`each[${i}]/a`, "success"), view(`each[${i}]/b`, b)];

describe("loops", () => {
  it("know the state of each item", () => {
    const model = buildModel(runOf([view("each", "running"), ...item(0, "success"), ...item(1, "failed"), ...item(2, "pending"), ...item(3, "skipped")]), loopPlan);
    const loop = model.loops.get("each");
    expect(loop).toMatchObject({ total: 4, failed: [1], running: 1 });
    expect(loop && cellsOf(loop).map((cell) => cell.state)).toEqual(["success", "failed", "running", "success"]);
    expect(defaultItem(loop)).toBe(1);
  });
  it("take items beyond the preview from a page of steps", () => {
    const page: StepPage = { steps: [view("each[250]/c/b", "failed"), view("each[270]/a", "running")], total: 2, counts: {}, failed_groups: [] };
    const model = buildModel(runOf([view("each", "success", { output: Array(300).fill(0) }), ...item(0, "success")], { status: "success" }), loopPlan, new Map([["each", page]]));
    const loop = model.loops.get("each");
    expect(loop).toMatchObject({ total: 300, failed: [250], running: 1 });
    const cells = loop ? cellsOf(loop) : [];
    expect(cells).toHaveLength(38);
    expect(cells.find((cell) => cell.state === "failed")).toEqual({ state: "failed", first: 248, last: 255 });
  });
  it("are found at any depth", () => {
    const model = buildModel(runOf([view("a[1]/b", "success"), view("a[1]/b[2]/c", "failed")]), planOf([]));
    expect([...model.loops.keys()].sort()).toEqual(["a", "a[1]/b"]);
    expect(model.loops.get("a[1]/b")).toMatchObject({ total: 3, failed: [2] });
    expect(model.loops.get("a")).toMatchObject({ total: 2, failed: [1] });
  });
});

describe("looks", () => {
  it("show the selected item's steps, else the failed one's", () => {
    const model = buildModel(runOf([view("each", "success"), ...item(0, "success"), ...item(1, "failed")]), loopPlan);
    const rail = railOf(model);
    expect(looksOf(model, null, rail, 0).runPath.get("each/b")).toBe("each[1]/b");
    const shown = looksOf(model, "each[0]/a", rail, 0);
    expect(shown.runPath.get("each/b")).toBe("each[0]/b");
    expect(shown.looks.get("each/b")?.state).toBe("success");
    expect(shown.looks.get("each")?.failedText).toBe("1 item failed");
  });
  it("mark the taken branch", () => {
    const plan = planOf([planStep("c", { kind: "choose", tool: null, bodies: [{ label: "when x", steps: [planStep("a")] }, { label: "otherwise", steps: [planStep("b")] }] })]);
    const { looks } = looksOf(buildModel(runOf([view("c", "success"), view("c/b", "success")], { status: "success" }), plan), null, { steps: [], done: 0, total: 0, active: false }, 0);
    expect([looks.get("c:0")?.taken, looks.get("c:1")?.taken, looks.get("c/a")?.state]).toEqual([false, true, "skipped"]);
  });
});

describe("rollback", () => {
  const writes = { effect: "writes" as const, rollback: { kind: "call" as const, tool: "t:undo" } };
  const plan = planOf([planStep("a", writes), planStep("b", writes), planStep("mail", { effect: "writes", rollback: { kind: "impossible", reason: "sent" } }), planStep("x")]);
  it("goes in reverse order of completion and says what stays", () => {
    const at = (s: number) => `2026-01-01T00:00:0${s}Z`;
    const model = buildModel(runOf([view("a", "success", { completed_at: at(1) }), view("b", "rolled_back", { completed_at: at(2) }), view("mail", "success", { completed_at: at(3) }), view("x", "failed")]), plan);
    expect(railOf(model).steps.map((step) => [step.path, step.state, step.order])).toEqual([["b", "done", 1], ["a", "next", 2], ["mail", "impossible", null]]);
  });
  it("is absent while nothing is rolled back", () => {
    expect(railOf(buildModel(runOf([view("a", "success")]), plan)).steps).toEqual([]);
  });
});

describe("rows", () => {
  it("come after what they need", () => {
    const steps = [planStep("c", { needs: ["b"] }), planStep("a"), planStep("b", { needs: ["a"] })];
    expect(topological(steps).map((step) => step.id)).toEqual(["a", "b", "c"]);
  });
  it("open a loop that holds the selection or a failure", () => {
    const model = buildModel(runOf([view("each", "success"), ...item(0, "success"), ...item(1, "success")]), loopPlan);
    expect(rowsOf(model, new Map(), null).map((row) => row.path)).toEqual(["each"]);
    expect(rowsOf(model, new Map(), "each[1]/b").map((row) => row.path)).toEqual(["each", "each[0]", "each[1]", "each[1]/a", "each[1]/b"]);
    expect(rowsOf(model, new Map([["each", false]]), "each[1]/b").map((row) => row.path)).toEqual(["each"]);
  });
});

describe("groups of items", () => {
  const items = Array.from({ length: 9 }, (_, i) => item(i, i === 6 ? "failed" : "success")).flat();
  const model = buildModel(runOf([view("each", "success"), ...items]), loopPlan);
  it("stand for items that went well", () => {
    expect(rowsOf(model, new Map(), null).map((row) => row.path)).toEqual(["each", "each[0–5]", "each[6]", "each[6]/a", "each[6]/b", "each[7]", "each[8]"]);
  });
  it("leave out the selected item, and open", () => {
    expect(rowsOf(model, new Map(), "each[5]").map((row) => row.path)).toEqual(["each", "each[0–4]", "each[5]", "each[5]/a", "each[5]/b", "each[6]", "each[7]", "each[8]"]);
    expect(rowsOf(model, new Map([["each[0–4]", true]]), "each[5]").filter((row) => row.kind === "item")).toHaveLength(9);
  });
});
