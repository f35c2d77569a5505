// Runs of a part of the composition: to a step, or of one step on the values of an earlier run.
import type { PlanStepView } from "@/api/types";

export type PartKind = "until" | "only";
export interface Part {
  kind: PartKind;
  step: string;
  /** The step that was meant, where it stands inside of `step`. */
  inner: string | null;
}

/** The server runs parts of the outermost steps: of a step inside of one, that one. */
export const outermostOf = (paths: ReadonlyMap<string, string>, step: string): string => (paths.get(step) ?? step).split("/")[0] ?? step;

/** The steps that a run to a step performs, in the order of the text, and the pinned ones whose outputs they take. What only a pinned step needs does not run. */
export function partOf(steps: readonly PlanStepView[], until: string, pinned: ReadonlySet<string>): { performed: PlanStepView[]; taken: ReadonlySet<string> } {
  const byName = new Map(steps.flatMap((step) => [[step.id, step] as const, ...(step.output_key ? [[step.output_key, step] as const] : [])]));
  const [wanted, taken] = [new Set<string>(), new Set<string>()];
  const queue = [until];
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    const step = byName.get(name);
    if (!step || wanted.has(step.id)) continue;
    if (pinned.has(step.id) && step.id !== until) {
      taken.add(step.id);
      continue;
    }
    wanted.add(step.id);
    queue.push(...step.needs);
  }
  return { performed: steps.filter((step) => wanted.has(step.id)), taken };
}
