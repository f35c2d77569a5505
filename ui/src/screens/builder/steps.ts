// Steps by id and path, ids of new steps, and ghosts of removed ones.
import type { PlanStepView } from "@/api/types";
import type { StepSpan } from "./model";

/** The path of each step of this text by its id. The steps of a called composition are not in it. */
export function pathsById(steps: readonly PlanStepView[], prefix = "", out = new Map<string, string>()): Map<string, string> {
  for (const step of steps) {
    const path = prefix + step.id;
    out.set(step.id, path);
    if (!step.tool) for (const body of step.bodies ?? []) pathsById(body.steps, `${path}/`, out);
  }
  return out;
}

export const idOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** Whether a path is of a step of this text, and not of a composition that one of its steps calls. */
export const isOwn = (paths: ReadonlyMap<string, string>, path: string): boolean => paths.get(idOf(path)) === path;

export function findStep(steps: readonly PlanStepView[], id: string): PlanStepView | null {
  for (const step of steps) {
    if (step.id === id) return step;
    if (step.tool) continue;
    for (const body of step.bodies ?? []) {
      const found = findStep(body.steps, id);
      if (found) return found;
    }
  }
  return null;
}

/** The list of steps that a step stands in. */
export function siblings(steps: readonly PlanStepView[], id: string): readonly PlanStepView[] {
  if (steps.some((step) => step.id === id)) return steps;
  for (const step of steps) {
    if (step.tool) continue;
    for (const body of step.bodies ?? []) {
      const found = siblings(body.steps, id);
      if (found.length > 0) return found;
    }
  }
  return [];
}

/** The innermost step around a position. */
export function stepAt(spans: readonly StepSpan[], at: number): string | null {
  let best: StepSpan | null = null;
  for (const span of spans) {
    if (at < span.start || at > span.end) continue;
    if (!best || span.end - span.start <= best.end - best.start) best = span;
  }
  return best?.step ?? null;
}

/** Names that expressions have for other things. */
const RESERVED = new Set(["input", "context", "state", "steps", "run", "loop", "output", "args", "error"]);

/** An id that no step has: `create_release`, `create_release_2`, … */
export function freeId(wanted: string, taken: ReadonlySet<string>): string {
  const word = wanted.slice(wanted.indexOf(":") + 1).replaceAll(/[^A-Za-z0-9_$-]+/g, "_").replace(/^_+|_+$/g, "") || "step";
  const base = RESERVED.has(word) ? `${word}_step` : word;
  if (!taken.has(base)) return base;
  for (let n = 2; ; n++) if (!taken.has(`${base}_${n}`)) return `${base}_${n}`;
}

export interface WithGhosts {
  steps: PlanStepView[];
  /** Paths of the ghosts. */
  ghosts: ReadonlySet<string>;
}

/**
 * The steps of the text with those that the saved file has and the text has not, each after the step that it came after.
 * `renamed` leads from ids in the file to ids in the text.
 */
export function withGhosts(now: readonly PlanStepView[], saved: readonly PlanStepView[], renamed: ReadonlyMap<string, string>): WithGhosts {
  const present = new Set(pathsById(now).keys());
  const isGone = (step: PlanStepView) => !present.has(step.id) && !present.has(renamed.get(step.id) ?? step.id);
  const ghosts = new Set<string>();
  const merge = (list: readonly PlanStepView[], old: readonly PlanStepView[], prefix: string): PlanStepView[] => {
    const out = list.map((step): PlanStepView => {
      const before = step.tool ? null : old.find((one) => (renamed.get(one.id) ?? one.id) === step.id);
      if (!before?.bodies || !step.bodies) return step;
      return { ...step, bodies: step.bodies.map((body, i) => ({ ...body, steps: merge(body.steps, before.bodies?.[i]?.steps ?? [], `${prefix}${step.id}/`) })) };
    });
    old.forEach((step, i) => {
      if (!isGone(step)) return;
      const previous = old[i - 1];
      const at = previous ? out.findIndex((one) => one.id === previous.id || one.id === renamed.get(previous.id)) : -1;
      const known = new Set(out.map((one) => one.id));
      out.splice(at + 1, 0, { ...step, bodies: [], ways: [], needs: step.needs.filter((need) => known.has(need)) });
      ghosts.add(prefix + step.id);
    });
    return out;
  };
  return { steps: merge(now, saved, ""), ghosts };
}
