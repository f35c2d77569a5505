// What Segue rolls back, in order, and what stays.
import type { PlanStepView, RollbackView, StepView } from "@/api/types";
import { planPath } from "@/lib/path";
import { findPlanStep, isRolledBack, isRollingBack, type RunModel } from "./model";

export interface RailStep {
  path: string;
  view: StepView;
  plan: PlanStepView;
  state: "done" | "running" | "next" | "failed" | "impossible";
  /** From 1, in reverse order of completion; null for what cannot be rolled back. */
  order: number | null;
}
export interface Rail {
  steps: RailStep[];
  done: number;
  total: number;
  /** Whether a rollback is under way or was made. */
  active: boolean;
}

const CHANGES = ["writes", "destroys", "unknown"];
const completed = (view: StepView): string => view.completed_at ?? "";

function candidate(model: RunModel, view: StepView): { view: StepView; plan: PlanStepView } | null {
  if (!view.tool) return null;
  const touched = view.status === "success" || isRolledBack(view) || isRollingBack(view);
  if (!touched) return null;
  const plan = findPlanStep(model.plan.steps, planPath(view.id));
  if (!plan || (plan.bodies ?? []).length > 0 || !CHANGES.includes(plan.effect)) return null;
  return { view, plan };
}

export function railOf(model: RunModel): Rail {
  const views = [...new Set(model.byPath.values())];
  const active = views.some((view) => isRolledBack(view) || isRollingBack(view)) || ["rolled_back", "rollback_failed"].includes(model.run.status);
  if (!active) return { steps: [], done: 0, total: 0, active };
  const found = views.map((view) => candidate(model, view)).filter((one) => one !== null);
  found.sort((a, b) => completed(b.view).localeCompare(completed(a.view)));
  let order = 0;
  const steps = found.map(({ view, plan }): RailStep => {
    const possible = canRollBack(plan.rollback) || isRolledBack(view);
    return { path: view.id, view, plan, state: railState(view, possible), order: possible ? ++order : null };
  });
  const ordered = [...steps.filter((step) => step.order !== null), ...steps.filter((step) => step.order === null)];
  return { steps: ordered, done: steps.filter((step) => step.state === "done").length, total: order, active };
}

const canRollBack = (rollback: RollbackView): boolean => rollback.kind === "call" || rollback.kind === "inside";

function railState(view: StepView, possible: boolean): RailStep["state"] {
  if (view.status === "rolled_back") return "done";
  if (view.status === "rollback_failed") return "failed";
  if (isRollingBack(view)) return "running";
  return possible ? "next" : "impossible";
}
