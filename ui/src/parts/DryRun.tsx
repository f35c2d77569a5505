import type { components } from "@/api/schema";
import type { StepView } from "@/api/types";
import { plural } from "@/lib/format";
import { JsonTree } from "./JsonTree";
import { EffectMark, RollbackMark } from "./Marks";
import { SafeText, ToolName } from "./SafeText";
import { State, StatePill } from "./State";
import "./dry-run.css";

type Result = components["schemas"]["CompositionResult"];

/** What each step would do. */
export function DryRun({ result }: { result: Result }) {
  const steps = result.steps ?? [];
  const asks = steps.filter((step) => step.would?.confirms).length;
  return (
    <section aria-label="Dry run" className="dry">
      <div className="row">
        <h2>Dry run</h2>
        <StatePill state={result.status} />
        <span className="muted">{plural(steps.filter((step) => step.tool).length, "call")}{asks > 0 && `, ${asks} would ask first`}</span>
      </div>
      {(result.errors ?? []).map((error, i) => (
        <div key={i} className="err"><div className="eh"><SafeText text={`${error.step ? `${error.step}: ` : ""}${error.message}`} most={1000} /></div></div>
      ))}
      {(result.warnings ?? []).map((warning, i) => <p key={i} className="muted"><SafeText text={warning} most={500} /></p>)}
      <ol>{steps.map((step) => <Would key={step.id} step={step} />)}</ol>
    </section>
  );
}

function Would({ step }: { step: StepView }) {
  const { would } = step;
  const hasInput = step.input !== null && step.input !== undefined;
  return (
    <li>
      <details>
        <summary>
          <b><SafeText text={step.id} most={160} /></b>
          {step.tool ? <ToolName tool={step.tool} /> : <span className="muted">{step.kind}</span>}
          {would ? (
            <>
              <EffectMark effect={would.effect} />
              <RollbackMark rollback={would.rollback} />
              {would.confirms && <span className="tag">asks first</span>}
              {would.called && <span className="tag" title="It only reads, so the dry run really called it">was called</span>}
            </>
          ) : (
            <State state={step.status} />
          )}
          {step.reason && <span className="muted ell"><SafeText text={step.reason} most={200} /></span>}
          {step.error && <span className="bad ell"><SafeText text={step.error.message} most={200} /></span>}
        </summary>
        {hasInput ? <JsonTree value={step.input} name="arguments" label={`Arguments of ${step.id}`} openDepth={2} /> : <p className="muted">No arguments are known in advance.</p>}
        {would?.called && step.output !== null && <JsonTree value={step.output} name="output" label={`Output of ${step.id}`} />}
      </details>
    </li>
  );
}
