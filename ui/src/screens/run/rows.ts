// The rows that timeline and outline share: the tree of the run in topological order.
import type { PlanStepView, StepView } from "@/api/types";
import { hasBodies, isLoop, waitsOnly } from "@/graph/layout";
import { plural } from "@/lib/format";
import type { AnyState } from "@/parts/State";
import { itemStateOf, stateOf, topological, type Loop, type RunModel } from "./model";

export interface Row {
  path: string;
  depth: number;
  /** A group is a range of items that went well. */
  kind: "step" | "item" | "group";
  plan: PlanStepView;
  view: StepView | undefined;
  state: AnyState;
  name: string;
  open: boolean | null;
  /** What it needs, in words. */
  needs: string;
  /** The condition or branch that it stands in. */
  branch: string | null;
}

/** What a step needs, and how: `a, b (only order)`. */
export const needsText = (step: PlanStepView): string => step.needs.map((id) => (waitsOnly(step, id) ? `${id} (only order)` : id)).join(", ");

/** Opened or closed by hand; otherwise loops are closed unless they hold the selection or a failure. */
export type Opened = ReadonlyMap<string, boolean>;

export function rowsOf(model: RunModel, opened: Opened, selected: string | null): Row[] {
  const rows: Row[] = [];
  const holds = (path: string) => selected !== null && (selected.startsWith(`${path}/`) || selected.startsWith(`${path}[`));
  const visit = (steps: PlanStepView[], prefix: string, depth: number, outside: string, branch: string | null): void => {
    for (const step of topological(steps)) {
      const path = prefix + step.id;
      const nested = hasBodies(step);
      const loop = model.loops.get(path);
      const open = nested ? (opened.get(path) ?? (isLoop(step) ? holds(path) || (loop?.failed.length ?? 0) > 0 : true)) : null;
      const needs = needsText(step) || outside || "nothing";
      rows.push({ path, depth, kind: "step", plan: step, view: model.byPath.get(path), state: stateOf(model, path), name: step.id, open, needs, branch });
      if (!open) continue;
      if (isLoop(step)) items(step, path, depth + 1);
      else for (const body of step.bodies ?? []) visit(body.steps, `${path}/`, depth + 1, needsText(step), step.kind === "choose" ? body.label : null);
    }
  };
  const items = (step: PlanStepView, path: string, depth: number): void => {
    const loop = model.loops.get(path);
    for (let i = 0; i < (loop?.total ?? 0); i++) {
      if (!loop) return;
      const last = wellUntil(loop, i, (one) => holds(`${path}[${one}]`) || selected === `${path}[${one}]`);
      if (last - i + 1 >= GROUP_LEAST) {
        const name = `[${i}–${last}]`;
        const wide = opened.get(path + name) ?? false;
        rows.push({ path: path + name, depth, kind: "group", plan: step, view: undefined, state: "success", name, open: wide, needs: "item", branch: null });
        if (!wide) {
          i = last;
          continue;
        }
        for (; i < last; i++) oneItem(step, path, i, depth + 1);
        oneItem(step, path, i, depth + 1);
        continue;
      }
      oneItem(step, path, i, depth);
    }
  };
  const oneItem = (step: PlanStepView, path: string, i: number, depth: number): void => {
    const loop = model.loops.get(path);
    if (loop) {
      const item = `${path}[${i}]`;
      const state = itemStateOf(loop, i);
      const open = opened.get(item) ?? (holds(item) || selected === item || (loop.failed[0] === i && !holds(path)));
      rows.push({ path: item, depth, kind: "item", plan: step, view: undefined, state, name: `[${i}]`, open, needs: "item", branch: null });
      if (open) for (const body of step.bodies ?? []) visit(body.steps, `${item}/`, depth + 1, "item", null);
    }
  };
  visit(model.plan.steps, "", 0, "", null);
  return rows;
}

const GROUP_LEAST = 4;

/** The last of the items from `first` on that all went well and that nobody looks at. */
function wellUntil(loop: Loop, first: number, watched: (item: number) => boolean): number {
  let last = first - 1;
  while (last + 1 < loop.total && itemStateOf(loop, last + 1) === "success" && !watched(last + 1)) last++;
  return last;
}

/** What happened, in a few words, beside the tool. */
export function happened(row: Row, model: RunModel): string {
  const { view, plan } = row;
  const loop = model.loops.get(row.path);
  if (loop) return `${plan.kind}, ${plural(loop.total, "item")}${loop.failed.length ? `, ${loop.failed.length} failed` : ""}`;
  if (row.kind !== "step") return "";
  if (view?.error) return `${view.error.message}${view.attempts > 1 ? `, ${view.attempts} attempts` : ""}`;
  if (view?.reason) return view.reason;
  if (view && view.attempts > 1) return `${view.attempts} attempts`;
  return plan.tool ? "" : plan.kind;
}
