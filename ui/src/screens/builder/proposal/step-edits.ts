// What accepting a part of a proposal does: the edits of one step, or why it cannot be taken alone.
import type { PlanStepView } from "@/api/types";
import { asEdit, changes } from "@/parts/form/changes";
import { stepValue } from "../parameters/step-value";
import type { Edit, Place } from "../model";
import { findStep, pathsById, siblings } from "../steps";
import type { StepChange } from "../versions/requests";

export interface Sides {
  /** The text as it is now, and its steps. */
  current: { text: string; steps: readonly PlanStepView[] };
  proposed: { text: string; steps: readonly PlanStepView[] };
}
export type Accepting = { ok: true; edits: Edit[] } | { ok: false; why: string };

const no = (why: string): Accepting => ({ ok: false, why });
const yes = (...edits: Edit[]): Accepting => ({ ok: true, edits });

export function stepEdits(change: StepChange, sides: Sides): Accepting {
  const { step } = change;
  switch (change.change) {
    case "removed":
      return yes({ kind: "remove_step", step });
    case "renamed":
      return change.was ? yes({ kind: "rename_step", step: change.was, to: step }) : no("its earlier id is not known");
    case "moved": {
      const place = placeOf(step, sides);
      return place ? yes({ kind: "move_step", step, place }) : no("the steps around it are not here yet");
    }
    case "added":
      return added(step, sides);
    case "changed":
      return changed(step, sides);
  }
}

function added(step: string, sides: Sides): Accepting {
  const value = stepValue(sides.proposed.text, step);
  const place = placeOf(step, sides);
  if (!value) return no("it cannot be read from the proposal: take its lines");
  return place ? yes({ kind: "add_step", step: value, place }) : no("it comes with the step that it is inside of");
}

function changed(step: string, { current, proposed }: Sides): Accepting {
  const before = stepValue(current.text, step);
  const after = stepValue(proposed.text, step);
  if (!before || !after) return no("it cannot be read from both texts: take its lines");
  const edits = changes(withoutSteps(before), withoutSteps(after)).map((one): Edit => ({ ...asEdit(one), step }));
  if (edits.length === 0) return no("only the steps inside of it differ");
  // A list of cases holds steps: setting it whole would take those of the proposal too.
  return edits.some((edit) => edit.kind === "set_field" && ["/choose", "/parallel", "/loop", "/repeat"].includes(edit.field)) ? no("its kind or its branches differ: take its lines") : { ok: true, edits };
}

/** The step without the steps inside of it, which are changes of their own. */
function withoutSteps(value: Record<string, unknown>): Record<string, unknown> {
  const inner = (one: unknown): unknown => {
    if (typeof one !== "object" || one === null || Array.isArray(one)) return one;
    return Object.fromEntries(Object.entries(one).filter(([key]) => key !== "steps" && key !== "otherwise"));
  };
  const { parallel: branches, choose: cases, ...rest } = value;
  const kept = Object.fromEntries(Object.entries(rest).map(([key, one]) => [key, key === "loop" || key === "repeat" ? inner(one) : one]));
  return { ...kept, ...(Array.isArray(cases) ? { choose: cases.map(inner) } : {}), ...(Array.isArray(branches) ? { parallel: branches.length } : {}) };
}

/** Where a step of the proposal belongs in the current text: beside a neighbour that is there, else in its container. */
function placeOf(step: string, { current, proposed }: Sides): Place | null {
  const here = new Set(pathsById(current.steps).keys());
  const list = siblings(proposed.steps, step);
  const at = list.findIndex((one) => one.id === step);
  const before = list.slice(0, at).findLast((one) => here.has(one.id));
  if (before) return { at: "after", step: before.id };
  const next = list.slice(at + 1).find((one) => here.has(one.id));
  if (next) return { at: "before", step: next.id };
  if (list === proposed.steps) return { at: "last_in" };
  const holder = holderOf(proposed.steps, step);
  if (!holder || !findStep(current.steps, holder.step)) return null;
  return { at: "last_in", step: holder.step, ...(holder.body === null ? {} : { body: holder.body }) };
}

function holderOf(steps: readonly PlanStepView[], id: string): { step: string; body: string | null } | null {
  for (const step of steps) {
    if (step.tool) continue;
    const bodies = step.bodies ?? [];
    for (const [i, body] of bodies.entries()) {
      if (body.steps.some((one) => one.id === id)) return { step: step.id, body: bodies.length > 1 || step.kind === "choose" ? String(i) : null };
      const found = holderOf(body.steps, id);
      if (found) return found;
    }
  }
  return null;
}
