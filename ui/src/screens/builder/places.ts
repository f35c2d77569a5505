// Where a step can be added or moved to: as a list for keys, and by position for a drop.
import type { PlanStepView } from "@/api/types";
import type { Layout, Placed } from "@/graph/layout";
import type { Place } from "./model";
import { findStep } from "./steps";

export interface NamedPlace {
  place: Place;
  /** `after pulls`, `first in summaries`. */
  words: string;
  /** The path of the node that the place is at, and on which side. Null in a composition without steps. */
  at: string | null;
  side: "above" | "below" | "inside";
  depth: number;
}

/** What a body of a step is called in an edit: a branch or a case by its number; a loop has only one. */
function bodyName(step: PlanStepView, i: number): string | null {
  if (step.kind !== "choose" && step.kind !== "parallel") return null;
  const body = step.bodies?.[i];
  // A parallel step without branches takes its first one.
  if (!body) return null;
  return body.label === "otherwise" ? "otherwise" : String(i);
}

const inside = (step: PlanStepView, i: number): { step: string; body?: string } => {
  const body = bodyName(step, i);
  return { step: step.id, ...(body === null ? {} : { body }) };
};

const holds = (step: PlanStepView): boolean => !step.tool && ["loop", "repeat", "parallel", "choose"].includes(step.kind);

/** Every place in the order of the text. `without` leaves out the places inside and directly around one step. */
export function places(steps: readonly PlanStepView[], without: string | null = null): NamedPlace[] {
  const out: NamedPlace[] = [];
  const visit = (list: readonly PlanStepView[], prefix: string, depth: number) => {
    list.forEach((step, i) => {
      if (step.id === without) return;
      const path = prefix + step.id;
      if (holds(step)) {
        const bodies = (step.bodies ?? []).length > 0 ? (step.bodies ?? []) : [{ label: "", steps: [] }];
        bodies.forEach((body, b) => {
          if (body.steps[0]?.id !== without || without === null)
            out.push({ place: { at: "first_in", ...inside(step, b) }, words: `first in ${step.id}${bodies.length > 1 ? `, ${body.label || `branch ${b + 1}`}` : ""}`, at: body.steps[0] ? `${path}/${body.steps[0].id}` : path, side: body.steps[0] ? "above" : "inside", depth: depth + 1 });
          visit(body.steps, `${path}/`, depth + 1);
        });
      }
      if (list[i + 1]?.id !== without || without === null) out.push({ place: { at: "after", step: step.id }, words: `after ${step.id}`, at: path, side: "below", depth });
    });
  };
  const first = steps[0];
  if (first && first.id !== without) out.push({ place: { at: "before", step: first.id }, words: `before ${first.id}`, at: first.id, side: "above", depth: 0 });
  if (!first) out.push({ place: { at: "last_in" }, words: "as the first step", at: null, side: "inside", depth: 0 });
  visit(steps, "", 0);
  return out;
}

/** The place after a step, else the last one. */
export function defaultPlace(all: readonly NamedPlace[], selected: string | null): number {
  const after = all.findIndex(({ place }) => place.at === "after" && place.step === selected);
  return after >= 0 ? after : all.length - 1;
}

const contains = (node: Placed, x: number, y: number): boolean => x >= node.x && x <= node.x + node.w && y >= node.y && y <= node.y + node.h;

/** What a step that is dropped at a point of the drawing becomes: before or after the node there, or last in the container. */
export function placeAt(layout: Layout, steps: readonly PlanStepView[], x: number, y: number): NamedPlace | null {
  const under = layout.nodes.filter((node) => contains(node, x, y)).sort((a, b) => b.depth - a.depth || (a.kind === "step" ? -1 : 1));
  const node = under[0];
  if (!node) return nearest(layout, steps, x, y);
  const id = node.step.id;
  if (node.kind === "branch") {
    const body = node.step.bodies?.[node.index];
    return { place: { at: "last_in", ...inside(node.step, node.index) }, words: `last in ${id}, ${body?.label || `branch ${node.index + 1}`}`, at: node.path, side: "inside", depth: node.depth };
  }
  if (node.kind === "container") return { place: { at: "last_in", ...inside(node.step, 0) }, words: `last in ${id}`, at: node.path, side: "inside", depth: node.depth };
  if (holds(node.step) && (node.step.bodies ?? []).every((body) => body.steps.length === 0) && y > node.y + node.h * 0.3 && y < node.y + node.h * 0.8)
    return { place: { at: "last_in", ...inside(node.step, 0) }, words: `first in ${id}`, at: node.path, side: "inside", depth: node.depth };
  const above = y < node.y + node.h / 2;
  return { place: { at: above ? "before" : "after", step: id }, words: `${above ? "before" : "after"} ${id}`, at: node.path, side: above ? "above" : "below", depth: node.depth };
}

/** On the empty canvas: after the outermost step whose node is the nearest above the point. */
function nearest(layout: Layout, steps: readonly PlanStepView[], x: number, y: number): NamedPlace | null {
  const outer = layout.nodes.filter((node) => node.kind !== "branch" && !node.path.includes("/"));
  if (outer.length === 0) return { place: { at: "last_in" }, words: "as the first step", at: null, side: "inside", depth: 0 };
  const above = outer.filter((node) => node.y + node.h / 2 <= y);
  const far = (node: Placed) => Math.abs(y - (node.y + node.h)) + Math.abs(x - (node.x + node.w / 2)) / 4;
  const best = above.sort((a, b) => far(a) - far(b))[0];
  if (best) return { place: { at: "after", step: best.step.id }, words: `after ${best.step.id}`, at: best.path, side: "below", depth: 0 };
  const first = steps[0];
  return first ? { place: { at: "before", step: first.id }, words: `before ${first.id}`, at: first.id, side: "above", depth: 0 } : null;
}

/** Whether a step may be moved to a place: not into itself. */
export function mayMove(steps: readonly PlanStepView[], id: string, to: NamedPlace): boolean {
  const step = findStep(steps, id);
  if (!step) return false;
  const target = to.place.step;
  if (!target) return true;
  if (target === id) return false;
  return !(step.bodies ?? []).some((body) => findStep(body.steps, target) !== null);
}
