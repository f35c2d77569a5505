// What a question means, in words.
import type { PlanStepView, PlanView, Question, RunView } from "@/api/types";
import { planPath } from "@/lib/path";

export const keyOf = (question: Question): string => `${question.run_id} ${question.question.step}`;

export interface Words {
  kind: string;
  yes: string;
  no: string;
  ifYes: string;
  ifNo: string;
}

/** Both answers, and what each leads to. */
export function wordsOf({ question }: Question): Words {
  const rollback = (question.covers ?? []).some((covered) => covered.takes_back);
  switch (question.kind) {
    case "run":
      return { kind: "Consent to a whole run", yes: "Allow this run", no: "Deny", ifYes: `The run starts, and calls every tool below without asking again${rollback ? ", also to roll back" : ""}.`, ifNo: "Nothing is called, and the run ends as denied." };
    case "call":
      return { kind: "Call of a tool", yes: "Allow this call", no: "Deny", ifYes: `The tool is called with exactly these arguments, and the run goes on.${rollback ? " If a later step fails, the rollback below is called too." : ""} The next call that needs consent asks again.`, ifNo: "The tool is not called, and the run ends as denied." };
    case "doubt":
      return { kind: "Call in doubt", yes: "It did its work", no: "It did not", ifYes: "The step counts as done, with the value below, and the run goes on. The tool is not called again.", ifNo: "The step counts as failed: its retries, fallbacks and the composition's error handling follow. The tool may be called again." };
    default:
      return { kind: question.schema ? "Question that wants data" : "Approval", yes: question.schema ? "Send and go on" : "Approve", no: "Deny", ifYes: "The run goes on. Later steps can read your answer, your name and the time.", ifNo: "The run ends as denied, whatever the composition says about failures." };
  }
}

export function title({ name, question }: Question): { text: string; tool: string | null; name: string } {
  const texts: Record<string, string> = { run: "May it run, with everything that it calls?", call: "May it call this tool?", doubt: "Did this call do its work?" };
  return { text: texts[question.kind] ?? question.message, tool: question.tool ?? null, name };
}

function planSteps(steps: PlanStepView[], prefix = ""): [string, PlanStepView][] {
  return steps.flatMap((step) => [[prefix + step.id, step] as [string, PlanStepView], ...(step.bodies ?? []).flatMap((body) => planSteps(body.steps, `${prefix}${step.id}/`))]);
}

export interface Fate {
  /** Whether the composition rolls back a run that is denied. */
  rollsBack: boolean;
  /** Finished steps that are rolled back, last first. */
  back: string[];
  /** Finished steps whose effect stays. */
  stay: string[];
}

/** What becomes of the finished steps after a no. */
export function fateOf(plan: PlanView, run: RunView): Fate {
  const steps = new Map(planSteps(plan.steps));
  const rollsBack = plan.error_handling.rollback_on_failure || plan.error_handling.failure_strategy === "rollback";
  const back: string[] = [];
  const stay: string[] = [];
  const done = run.steps.filter((step) => step.status === "success" && step.tool).sort((a, b) => (b.completed_at ?? "").localeCompare(a.completed_at ?? ""));
  for (const step of done) {
    const planned = steps.get(planPath(step.id));
    if (!planned || planned.effect === "reads" || planned.effect === "none") continue;
    if (rollsBack && planned.rollback.kind === "call") back.push(step.id);
    else if (planned.rollback.kind !== "not_needed" && planned.rollback.kind !== "inside") stay.push(step.id);
  }
  return { rollsBack, back, stay };
}

/** `a, b, c and 4 more`. */
export function names(all: string[], most = 6): string {
  return all.length <= most ? all.join(", ") : `${all.slice(0, most).join(", ")} and ${all.length - most} more`;
}
