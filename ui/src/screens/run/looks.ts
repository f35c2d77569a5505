// What the graph shows of a run: the look of each step of the plan, for the items that are shown.
import type { PlanStepView, StepView } from "@/api/types";
import { hasBodies, isLoop } from "@/graph/layout";
import type { Cell, Look } from "@/graph/looks";
import { count, duration, plural } from "@/lib/format";
import { itemOf } from "@/lib/path";
import { stateWord, type AnyState } from "@/parts/State";
import { defaultItem, isRolledBack, isRollingBack, itemStateOf, stateOf, type Loop, type RunModel } from "./model";
import type { Rail } from "./rollback";

export interface Shown {
  looks: Map<string, Look>;
  /** The path in the run of each step of the plan that is shown. */
  runPath: Map<string, string>;
}

export const CELLS_MOST = 40;

export function cellsOf(loop: Loop): Cell[] {
  const size = Math.max(1, Math.ceil(loop.total / CELLS_MOST));
  const cells: Cell[] = [];
  for (let first = 0; first < loop.total; first += size) {
    const last = Math.min(first + size, loop.total) - 1;
    const states = new Set(Array.from({ length: last - first + 1 }, (_, i) => itemStateOf(loop, first + i)));
    const state = (["failed", "running", "pending", "success", "skipped"] as const).find((one) => states.has(one)) ?? "pending";
    cells.push({ state, first, last });
  }
  return cells;
}

/** Why a run of a part did not perform a step. */
export const ORIGIN_WORDS: Record<NonNullable<StepView["origin"]>, string> = { pinned: "Pinned", reused: "Earlier run", left_out: "Left out" };

/** The elapsed time of a step, as the right end of its node says it. */
export function whenText(state: AnyState, view: StepView | undefined, now: number): string | undefined {
  if (isRollingBack(view)) return "Rolling back";
  if (view?.origin) return ORIGIN_WORDS[view.origin];
  const took = view?.started_at ? (view.completed_at ? view.duration_ms : Math.max(view.duration_ms, now - Date.parse(view.started_at))) : null;
  switch (state) {
    case "success":
    case "running":
      return took === null ? undefined : duration(took);
    case "failed":
    case "cancelled":
      return took ? `${stateWord(state)} ${duration(took)}` : stateWord(state);
    case "pending":
      return undefined;
    default:
      return stateWord(state);
  }
}

export function looksOf(model: RunModel, selected: string | null, rail: Rail, now: number): Shown {
  const shown: Shown = { looks: new Map(), runPath: new Map() };
  const corners = new Map(rail.steps.map((step) => [step.path, step]));
  const visit = (steps: PlanStepView[], planPrefix: string, runPrefix: string): void => {
    for (const step of steps) {
      const plan = planPrefix + step.id;
      const path = runPrefix + step.id;
      shown.runPath.set(plan, path);
      const look = stepLook(model, path, now);
      const corner = corners.get(path);
      if (corner) look.corner = cornerOf(corner, rail.total);
      shown.looks.set(plan, look);
      if (!hasBodies(step)) continue;
      let inner = `${path}/`;
      if (isLoop(step)) {
        const loop = model.loops.get(path);
        const item = (selected ? itemOf(selected, path) : null) ?? defaultItem(loop);
        Object.assign(look, loopLook(loop, item));
        inner = `${path}[${item}]/`;
      }
      (step.bodies ?? []).forEach((body, i) => {
        const taken = body.steps.some((one) => {
          const view = model.byPath.get(inner + one.id);
          return view !== undefined && view.status !== "skipped";
        });
        shown.looks.set(`${plan}:${i}`, { state: taken ? "success" : "skipped", taken });
        visit(body.steps, `${plan}/`, inner);
      });
    }
  };
  visit(model.plan.steps, "", "");
  return shown;
}

function stepLook(model: RunModel, path: string, now: number): Look {
  const view = model.byPath.get(path);
  const state = stateOf(model, path);
  const look: Look = { state };
  const when = whenText(state, view, now);
  if (when) look.when = when;
  if (view && view.attempts > 1) look.attempts = view.attempts;
  if (isRolledBack(view) || isRollingBack(view)) look.back = true;
  return look;
}

function loopLook(loop: Loop | undefined, item: number): Partial<Look> {
  if (!loop) return { cells: [], progress: "no items yet" };
  const done = loop.total - loop.running - [...loop.states.values()].filter((state) => state === "pending").length;
  return {
    cells: cellsOf(loop),
    progress: `${count(done)} of ${count(loop.total)}`,
    ...(loop.failed.length > 0 ? { failedText: `${plural(loop.failed.length, "item")} failed` } : {}),
    item,
  };
}

function cornerOf(step: Rail["steps"][number], total: number): Look["corner"] {
  if (step.order === null) return { text: "stays", tone: "rollback_failed" };
  const tone: AnyState = step.state === "failed" ? "rollback_failed" : step.state === "running" ? "running" : "rolled_back";
  return { text: step.state === "next" ? `${step.order}, next` : `${step.order} of ${total}`, tone };
}
