import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useRef, useState } from "react";
import { runQuery, toolsQuery } from "@/api/queries";
import { announce } from "@/app/announce";
import type { Key } from "@/lib/json-rows";
import { shortId } from "@/lib/format";
import { Segmented } from "@/parts/Segmented";
import { loadMore } from "../run/whole-value";
import { useChecked, useShown } from "./builder";
import { useBuilderContext } from "./context";
import type { BuilderContext } from "./model";
import { DataPanel } from "./data/DataPanel";
import { sources } from "./data/sources";
import { fieldEdit, type FieldReference } from "./parameters/reference";
import { StepForm } from "./parameters/StepForm";
import { StepPreview } from "./parameters/StepPreview";
import { documentValue, stepValue } from "./parameters/step-value";
import { pinnedSteps, usePins } from "./pins";
import { findStep, pathsById } from "./steps";

const SIDES = [
  { value: "data", label: "Values" },
  { value: "preview", label: "Preview" },
] as const;

/** The fields of the selected step, beside the values that it can use and what its arguments give on the shown run. */
export function StepPane() {
  const step = useShown((shown) => shown.selected);
  const { context, value } = useReadable(useBuilderContext(), step);
  const run = useShown((shown) => shown.run);
  const steps = useChecked((checked) => checked.analysis?.steps);
  const tools = useQuery(toolsQuery).data?.tools;
  const [side, setSide] = useState<"data" | "preview">("preview");
  const [field, setField] = useState<string | null>(null);
  const plan = useMemo(() => (step ? findStep(steps ?? [], step) : null), [steps, step]);
  const others = useMemo(() => [...pathsById(steps ?? []).keys()].filter((id) => id !== step), [steps, step]);
  const tool = tools?.find((one) => one.id === plan?.tool) ?? null;
  if (!step || !value) return <p className="muted">{step ? "This step cannot be read from the text at the moment." : "Select a step."}</p>;
  return (
    <div className="b-stepform">
      <StepForm key={`${step} ${tool?.hash ?? ""}`} context={context} step={step} value={value} tool={tool} others={others} onField={setField} />
      <div className="b-side">
        <Segmented mini label="Beside the fields" value={side} options={SIDES.map((one) => ({ ...one }))} onChange={setSide} />
        {side === "preview" ? <StepPreview context={context} step={step} runName={run ? shortId(run) : null} /> : <Values context={context} step={step} field={field} />}
      </div>
    </div>
  );
}

/** The values that the step can use. A key puts one into the field that had the focus. */
function Values({ context, step, field }: { context: BuilderContext; step: string; field: string | null }) {
  const { run: id, analysis, edit } = context;
  const tools = useQuery(toolsQuery).data?.tools;
  const run = useQuery({ ...runQuery(id ?? ""), enabled: id !== null }).data ?? null;
  const pins = usePins();
  const pinned = useMemo(() => pinnedSteps(pins), [pins]);
  // A text with errors has no plan; what it asks for is still written in it.
  const inputs = useMemo(() => (analysis?.valid === false ? documentValue(context.text)?.input : undefined), [analysis?.valid, context.text]);
  const known = useMemo(
    () => sources({ steps: analysis?.steps ?? [], inputs: analysis?.plan?.inputs ?? analysis?.inputs ?? inputs, run, tools: tools ?? [], pinned, items: (loop) => itemName(context.text, loop) }, step),
    [analysis, inputs, run, tools, pinned, step, context.text],
  );
  const use = useCallback(
    (reference: FieldReference) => {
      if (field === null) return announce("Choose a field first");
      void edit(fieldEdit(reference, step, field)).then((refusal) => refusal === null && announce(`Put ${reference.expression} into ${field.slice(1)}`));
    },
    [edit, step, field],
  );
  const load = useCallback((path: string | null, keys: Key[], offset: number) => (id === null ? Promise.resolve(null) : loadMore(id, path ?? undefined, path === null ? "input" : "output", keys, offset)), [id]);
  return <DataPanel sources={known} target={field === null ? null : field.slice(1)} onUse={use} {...(id === null ? {} : { load })} />;
}

/** What a loop calls its item. */
function itemName(text: string, loop: string): string {
  const fields = stepValue(text, loop)?.loop;
  return typeof fields === "object" && fields !== null && "as" in fields && typeof fields.as === "string" ? fields.as : "item";
}

/** While the step cannot be read from the text, it is as it was, and nothing is asked about the text without it. */
function useReadable(context: BuilderContext, step: string | null): { context: BuilderContext; value: Record<string, unknown> | null } {
  const last = useRef<{ step: string; value: Record<string, unknown>; context: BuilderContext } | null>(null);
  const value = useMemo(() => (step ? stepValue(context.text, step) : null), [context.text, step]);
  if (step && value) last.current = { step, value, context };
  if (value || !last.current || last.current.step !== step) return { context, value };
  return last.current;
}
