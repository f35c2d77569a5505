import * as Tabs from "@radix-ui/react-tabs";
import { clock } from "@/lib/format";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { StatePill, StateIcon } from "@/parts/State";
import { useRunContext } from "../context";
import { ValueTree } from "./ValueTree";

/** About the run itself, while no step is selected. */
export function RunPanel() {
  const { model: { run, plan }, tab, select } = useRunContext();
  const current = tab === "input" || tab === "output" ? tab : "step";
  return (
    <aside className="panel" aria-label="The run">
      <Tabs.Root value={current} onValueChange={(value) => select(null, value as "step" | "input" | "output")} className="panel-in">
        <div className="ph">
          <div className="ttl">
            <StateIcon state={run.interrupted ? "in_doubt" : run.status} />
            <b className="ell"><SafeText text={run.name} most={80} /></b>
            {run.interrupted ? <StatePill state="in_doubt">Interrupted</StatePill> : <StatePill state={run.status} />}
          </div>
          <div className="sub"><span className="ell muted"><SafeText text={plan.description} most={300} /></span></div>
          <Tabs.List className="tabs" aria-label="About the run">
            <Tabs.Trigger value="step">Run</Tabs.Trigger>
            <Tabs.Trigger value="input">Input</Tabs.Trigger>
            <Tabs.Trigger value="output">Output</Tabs.Trigger>
          </Tabs.List>
        </div>
        <Tabs.Content value="step" className="pb"><About /></Tabs.Content>
        <Tabs.Content value="input" className="pb">
          <ValueTree part="input" value={run.input} />
          {isFilled(run.context) && <ValueTree part="context" value={run.context} />}
        </Tabs.Content>
        <Tabs.Content value="output" className="pb"><ValueTree part="output" value={run.output} /></Tabs.Content>
      </Tabs.Root>
    </aside>
  );
}

const isFilled = (value: unknown): boolean => typeof value === "object" && value !== null && Object.keys(value).length > 0;

function About() {
  const { model: { run, plan }, select, actions } = useRunContext();
  return (
    <>
      {run.errors.length > 0 && (
        <section aria-label="Errors">
          <div className="sec"><h2>Errors</h2></div>
          {run.errors.slice(0, 20).map((error, i) => (
            <button key={i} type="button" className="errline s-failed" onClick={() => error.step && select(error.step)}>
              <Icon name="s-failed" />
              <span>{error.step && <code><SafeText text={error.step} most={60} /> </code>}<SafeText text={error.message} most={400} /></span>
            </button>
          ))}
        </section>
      )}
      {run.warnings.length > 0 && (
        <section aria-label="Warnings">
          <div className="sec"><h2>Warnings</h2></div>
          {run.warnings.slice(0, 20).map((text, i) => <p key={i}><SafeText text={text} most={400} /></p>)}
        </section>
      )}
      <div className="sec"><h2>Facts</h2></div>
      <dl className="dl">
        <dt>Id</dt><dd><code>{run.run_id}</code></dd>
        <dt>Started</dt><dd className="num">{clock(run.started_at)}</dd>
        {run.completed_at && <><dt>Ended</dt><dd className="num">{clock(run.completed_at)}</dd></>}
        <dt>On failure</dt><dd>{plan.error_handling.failure_strategy.replaceAll("_", " ")}{plan.error_handling.rollback_on_failure && ", roll back"}</dd>
        <dt>Plan</dt><dd><code>{plan.hash.slice(0, 16)}</code></dd>
      </dl>
      <ValueTree part="output" value={run.output} />
      <p className="muted">Select a step to see its arguments, output and attempts.</p>
      {actions.rerun.error ? <Failure error={actions.rerun.error} /> : null}
    </>
  );
}
