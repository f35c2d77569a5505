import type { PlanStepView } from "@/api/types";

export type PlanRow =
  | { kind: "step"; key: string; depth: number; step: PlanStepView }
  | { kind: "body"; key: string; depth: number; label: string };

/** The steps of a plan with the steps of their bodies, in the order of the text. */
export function planRows(steps: PlanStepView[], depth = 0, path = ""): PlanRow[] {
  return steps.flatMap((step) => {
    const key = `${path}/${step.id}`;
    const inside = (step.bodies ?? []).flatMap((body, i): PlanRow[] => [
      { kind: "body", key: `${key}#${i}`, depth: depth + 1, label: body.label },
      ...planRows(body.steps, depth + 2, `${key}#${i}`),
    ]);
    return [{ kind: "step", key, depth, step } satisfies PlanRow, ...inside];
  });
}

/** Every step of a plan, also inside bodies. */
export const allSteps = (steps: PlanStepView[]): PlanStepView[] =>
  planRows(steps).flatMap((row) => (row.kind === "step" ? [row.step] : []));

/** The step's path in the plan, without the number of its body. */
export const pathOf = (key: string): string => key.replaceAll(/#\d+/g, "").slice(1);
