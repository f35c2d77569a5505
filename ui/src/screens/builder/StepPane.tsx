import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import { toolsQuery } from "@/api/queries";
import { shortId } from "@/lib/format";
import { useChecked, useShown } from "./builder";
import { useBuilderContext } from "./context";
import { StepForm } from "./parameters/StepForm";
import { StepPreview } from "./parameters/StepPreview";
import { stepValue } from "./parameters/step-value";
import { findStep, pathsById } from "./steps";

/** The fields of the selected step, and what they give on the data of the shown run. */
export function StepPane() {
  const context = useBuilderContext();
  const step = useShown((shown) => shown.selected);
  const run = useShown((shown) => shown.run);
  const steps = useChecked((checked) => checked.analysis?.steps);
  const tools = useQuery(toolsQuery).data?.tools;
  const plan = useMemo(() => (step ? findStep(steps ?? [], step) : null), [steps, step]);
  const others = useMemo(() => [...pathsById(steps ?? []).keys()].filter((id) => id !== step), [steps, step]);
  const value = useStepValue(context.text, step);
  const tool = tools?.find((one) => one.id === plan?.tool) ?? null;
  if (!step || !value) return <p className="muted">{step ? "This step cannot be read from the text at the moment." : "Select a step."}</p>;
  return (
    <div className="b-stepform">
      <StepForm key={`${step} ${tool?.hash ?? ""}`} context={context} step={step} value={value} tool={tool} others={others} />
      {plan?.tool && <StepPreview context={context} step={step} runName={run ? shortId(run) : null} />}
    </div>
  );
}

/** While the text cannot be read, the step is as it was. */
function useStepValue(text: string, step: string | null): Record<string, unknown> | null {
  const last = useRef<{ step: string; value: Record<string, unknown> } | null>(null);
  const value = useMemo(() => (step ? stepValue(text, step) : null), [text, step]);
  if (step && value) last.current = { step, value };
  return value ?? (last.current?.step === step ? last.current.value : null);
}
