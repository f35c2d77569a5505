// What a run of a part performs, and which pinned outputs stand in place of calls.
import type { PlanStepView } from "@/api/types";
import { brief } from "@/parts/expression/brief";
import { plural } from "@/lib/format";
import { EffectMark, RollbackMark } from "@/parts/Marks";
import { SafeText, ToolName } from "@/parts/SafeText";

/** Only these are named; a number stands for the rest. */
const NAMED_MOST = 50;

/** The steps that the run performs, with what they do: nobody runs to here and wonders what was called. */
export function PartSteps({ steps, only, inner }: { steps: readonly PlanStepView[]; only: string | null; inner: string | null }) {
  return (
    <section aria-label="Steps of this run">
      {inner !== null && <p className="muted"><SafeText text={inner} most={60} /> is inside of it, and runs with it.</p>}
      <p>{only === null ? `Runs ${plural(steps.length, "step")}: this one, and what it needs.` : <>Runs one step. Every other value is that of run <code>{only}</code>.</>}</p>
      <ul className="b-part" tabIndex={0} aria-label="Steps of this run">
        {steps.slice(0, NAMED_MOST).map((step) => (
          <li key={step.id}>
            <b className="ell"><SafeText text={step.id} most={60} /></b>
            {step.tool ? <ToolName tool={step.tool} /> : <span className="muted">{step.kind}</span>}
            <span className="grow" />
            <EffectMark effect={step.effect} />
            <RollbackMark rollback={step.rollback} />
          </li>
        ))}
        {steps.length > NAMED_MOST && <li className="muted">and {steps.length - NAMED_MOST} more</li>}
      </ul>
    </section>
  );
}

interface PinProps {
  file: string;
  outputs: readonly (readonly [string, unknown])[];
  /** Those that are chosen, and of them those that the run takes. */
  wanted: ReadonlyMap<string, unknown>;
  used: ReadonlyMap<string, unknown>;
  onChange: (name: string, use: boolean) => void;
}

export function PinChoice({ file, outputs, wanted, used, onChange }: PinProps) {
  if (outputs.length === 0) return null;
  return (
    <fieldset className="b-choice b-pins">
      <legend>Pinned outputs in place of calls</legend>
      {outputs.map(([name, value]) => (
        <label key={name} className="row">
          <input type="checkbox" checked={wanted.has(name)} onChange={(event) => onChange(name, event.target.checked)} />
          <SafeText text={name} most={60} />
          <code className="muted ell">{wanted.has(name) && !used.has(name) ? "not needed" : <SafeText text={brief(value, 80)} most={100} />}</code>
        </label>
      ))}
      <p className="muted">From <SafeText text={file} most={120} />. A step with one is not called.</p>
    </fieldset>
  );
}
