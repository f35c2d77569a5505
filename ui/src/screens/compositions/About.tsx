import type { PlanView } from "@/api/types";
import { allSteps } from "@/lib/plan-rows";
import { duration, plural } from "@/lib/format";
import { EffectMark } from "@/parts/Marks";
import { SafeText } from "@/parts/SafeText";

/** What the plan says as a whole. */
export function About({ plan }: { plan: PlanView }) {
  const steps = allSteps(plan.steps);
  const lasting = steps.filter((step) => step.rollback.kind === "impossible");
  const unclear = steps.filter((step) => step.rollback.kind === "unknown");
  const { error_handling: errors } = plan;
  return (
    <dl className="compfacts">
      <dt>Steps</dt>
      <dd>{plural(steps.length, "step")}, longest chain {plural(plan.longest_path.length, "step")}</dd>
      <dt>Effect</dt>
      <dd>{plan.effect === "none" ? "calls nothing" : <EffectMark effect={plan.effect} />}{plan.atomic && ", one consent for the whole run"}</dd>
      <dt>Rollback</dt>
      <dd>
        {errors.rollback_on_failure || errors.failure_strategy === "rollback" ? "A run that fails is rolled back." : "A run that fails is not rolled back by itself."}
        {lasting.length > 0 && <> Cannot be rolled back: <code><SafeText text={lasting.map((step) => step.id).join(", ")} most={300} /></code>.</>}
        {unclear.length > 0 && <> Not known: <code><SafeText text={unclear.map((step) => step.id).join(", ")} most={300} /></code>.</>}
      </dd>
      <dt>When a step fails</dt>
      <dd><SafeText text={errors.failure_strategy} most={60} />{errors.max_retries !== null && `, ${plural(errors.max_retries, "retry", "retries")}`}</dd>
      {plan.estimated_duration_ms != null && (
        <>
          <dt>Takes about</dt>
          <dd>{duration(plan.estimated_duration_ms)}</dd>
        </>
      )}
    </dl>
  );
}
