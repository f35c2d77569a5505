// A run in the shape that all its views share: steps by path, loops with their items, what is rolled back.
import type { PlanStepView, PlanView, RunView, StepPage, StepStatus, StepView } from "@/api/types";
import { isCut } from "@/lib/json-rows";
import { itemOf, parentPath } from "@/lib/path";
import { isOver, type AnyState } from "@/parts/State";

export type ItemState = "success" | "failed" | "running" | "pending" | "skipped";

export interface Loop {
  /** Its path in the run. */
  path: string;
  total: number;
  /** Items whose state is not success. */
  states: Map<number, ItemState>;
  failed: number[];
  running: number;
}

export interface RunModel {
  run: RunView;
  plan: PlanView;
  over: boolean;
  byPath: Map<string, StepView>;
  waiting: Set<string>;
  loops: Map<string, Loop>;
}

/** How many items of a loop a preview holds. */
export const PREVIEW_ITEMS = 100;

/** Pages about loops with more items than the preview holds, by the loop's path. */
export type LoopPages = ReadonlyMap<string, StepPage>;

const VISIT = /#\d+$/;

export function buildModel(run: RunView, plan: PlanView, pages: LoopPages = new Map(), extra: StepView[] = []): RunModel {
  const byPath = new Map<string, StepView>();
  for (const step of [...run.steps, ...extra]) {
    byPath.set(step.id, step);
    // A step that a program visits again is shown as it was last.
    if (VISIT.test(step.id)) byPath.set(step.id.replace(VISIT, ""), step);
  }
  const model: RunModel = { run, plan, over: isOver(run.status), byPath, waiting: new Set((run.waiting_for ?? []).map((wait) => wait.step)), loops: new Map() };
  for (const [path, loop] of findLoops([...run.steps, ...extra])) model.loops.set(path, finishLoop(model, path, loop, pages.get(path)));
  for (const step of byPath.values()) if (FAILED.includes(step.status)) markAround(model, step.id);
  return model;
}

/** Direct steps of each item, by loop: `a[1]/b[2]/c` counts for item 2 of `a[1]/b`. */
function findLoops(steps: StepView[]): Map<string, Map<number, StepView[]>> {
  const loops = new Map<string, Map<number, StepView[]>>();
  for (const step of steps) {
    const holder = parentPath(step.id);
    const match = holder && /^(.*)\[(\d+)\]$/.exec(holder);
    if (!match?.[1]) continue;
    const items = loops.get(match[1]) ?? new Map<number, StepView[]>();
    loops.set(match[1], items);
    const item = Number(match[2]);
    items.set(item, [...(items.get(item) ?? []), step]);
  }
  return loops;
}

export function itemState(steps: StepView[]): ItemState {
  const has = (...states: StepStatus[]) => steps.some((step) => states.includes(step.status));
  if (has("failed", "rollback_failed", "in_doubt")) return "failed";
  if (has("running")) return "running";
  if (has("success", "rolled_back")) return has("pending") ? "running" : "success";
  return has("pending") ? "pending" : "skipped";
}

function finishLoop(model: RunModel, path: string, items: Map<number, StepView[]>, page: StepPage | undefined): Loop {
  const view = model.byPath.get(path);
  const states = new Map<number, ItemState>();
  for (const [item, steps] of items) {
    const state = itemState(steps);
    if (state !== "success") states.set(item, state);
  }
  let total = Math.max(-1, ...items.keys()) + 1;
  for (const step of page?.steps ?? []) {
    const item = itemOf(step.id, path);
    if (item === null) continue;
    total = Math.max(total, item + 1);
    const state = itemState([step]);
    if (state === "failed" || (state === "running" && states.get(item) !== "failed")) states.set(item, state);
  }
  total = Math.max(total, lengthOf(view?.output));
  const failed = [...states].filter(([, state]) => state === "failed").map(([item]) => item).sort((a, b) => a - b);
  return { path, total, states, failed, running: [...states.values()].filter((state) => state === "running").length };
}

function lengthOf(value: unknown): number {
  if (Array.isArray(value)) return value.length;
  return isCut(value) && value.$cut.kind === "array" ? value.$cut.length : 0;
}

const FAILED: StepStatus[] = ["failed", "rollback_failed", "in_doubt"];

/** A failure inside an item is the item's, at any depth, also where it was tolerated. */
function markAround(model: RunModel, path: string): void {
  for (const match of path.matchAll(/\[(\d+)\]/g)) {
    const loop = model.loops.get(path.slice(0, match.index));
    const item = Number(match[1]);
    if (!loop || loop.states.get(item) === "failed") continue;
    loop.states.set(item, "failed");
    loop.failed = [...loop.failed, item].sort((a, b) => a - b);
  }
}

export const itemStateOf = (loop: Loop, item: number): ItemState => loop.states.get(item) ?? (item < loop.total ? "success" : "pending");

/** The item that a view shows unless one is selected: the first that failed, else one that runs, else the first. */
export function defaultItem(loop: Loop | undefined): number {
  if (!loop) return 0;
  if (loop.failed[0] !== undefined) return loop.failed[0];
  for (const [item, state] of loop.states) if (state === "running") return item;
  return 0;
}

export function stateOf(model: RunModel, path: string): AnyState {
  if (model.waiting.has(path)) return "waiting";
  const view = model.byPath.get(path);
  // The process that called it is gone: no answer came.
  if (view?.status === "running" && model.run.interrupted) return "in_doubt";
  if (view) return view.status;
  return model.over ? "skipped" : "pending";
}

/** A step that is being rolled back runs although it completed. */
export const isRollingBack = (view: StepView | undefined): boolean => view?.status === "running" && view.completed_at !== null;
export const isRolledBack = (view: StepView | undefined): boolean => view?.status === "rolled_back" || view?.status === "rollback_failed";

/** A stable order in which every step comes after what it needs. */
export function topological(steps: PlanStepView[]): PlanStepView[] {
  const byId = new Map(steps.map((step) => [step.id, step]));
  const done = new Set<string>();
  const out: PlanStepView[] = [];
  const visit = (step: PlanStepView): void => {
    if (done.has(step.id)) return;
    done.add(step.id);
    for (const need of step.needs) {
      const before = byId.get(need);
      if (before) visit(before);
    }
    out.push(step);
  };
  for (const step of steps) visit(step);
  return out;
}

export function findPlanStep(steps: PlanStepView[], path: string): PlanStepView | undefined {
  const [first, ...rest] = path.split("/");
  const step = steps.find((one) => one.id === first);
  if (!step || rest.length === 0) return step;
  for (const body of step.bodies ?? []) {
    const found = findPlanStep(body.steps, rest.join("/"));
    if (found) return found;
  }
  return undefined;
}
