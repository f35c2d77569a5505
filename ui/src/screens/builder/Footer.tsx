import { useMemo, useState } from "react";
import type { Impact, PlanStepView } from "@/api/types";
import { plural } from "@/lib/format";
import { Finding as FindingBox } from "@/parts/Finding";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { useBuilder, useChecked, useShown } from "./builder";
import { useNoWrite } from "./save";

const WORST: Impact[] = ["none", "reads", "writes", "unknown", "destroys"];

function all(steps: readonly PlanStepView[]): PlanStepView[] {
  return steps.flatMap((step) => [step, ...(step.tool ? [] : (step.bodies ?? []).flatMap((body) => all(body.steps)))]);
}

/** What is found, what the composition does at worst, and what of it cannot be rolled back. */
export function Footer() {
  const builder = useBuilder();
  const analysis = useChecked((checked) => checked.read);
  const failure = useChecked((checked) => checked.error);
  const tookMs = useChecked((checked) => (checked.current ? checked.tookMs : null));
  const refusal = useShown((shown) => shown.refusal);
  const noWrite = useNoWrite();
  const [open, setOpen] = useState(false);
  const findings = analysis?.findings ?? [];
  const errors = findings.filter((one) => one.severity === "error").length;
  const others = findings.length - errors;
  const steps = useMemo(() => all(analysis?.steps ?? []), [analysis?.steps]);
  const worst = steps.reduce<Impact>((now, step) => (WORST.indexOf(step.effect) > WORST.indexOf(now) ? step.effect : now), "none");
  const lasting = steps.filter((step) => step.rollback.kind === "impossible" || step.rollback.kind === "unknown");
  const goTo = (i: number) => {
    // With its place as it is by now.
    const at = builder.analyzer.snapshot().analysis?.findings[i]?.start;
    if (at !== undefined) builder.document.dispatch({ selection: { anchor: at }, scrollIntoView: true, userEvent: "select" });
  };
  return (
    <footer className="b-foot">
      {refusal && (
        <div className="b-refusal" role="alert">
          <Icon name="s-failed" label="refused" />
          <SafeText text={refusal} most={600} />
          <button type="button" className="link" onClick={() => builder.refuse(null)}>Close</button>
        </div>
      )}
      {open && findings.length > 0 && (
        <div className="b-findings" role="region" aria-label="Findings" tabIndex={0}>
          {findings.slice(0, 200).map((one, i) => (
            <FindingBox key={i} finding={one} onOpen={() => goTo(i)} />
          ))}
        </div>
      )}
      <div className="legend" role="status" aria-live="off">
        {failure ? (
          <span className="st s-failed"><Icon name="s-failed" small /><span className="ell">not checked: {failure instanceof Error ? <SafeText text={failure.message} most={200} /> : "the server does not answer"}</span></span>
        ) : findings.length > 0 ? (
          <button type="button" className="b-count" aria-expanded={open} onClick={() => setOpen(!open)}>
            {errors > 0 && <span className="st s-failed"><Icon name="s-failed" small />{plural(errors, "error")}</span>}
            {others > 0 && <span className="st s-waiting"><Icon name="i-warn" small />{plural(others, "warning")}</span>}
          </button>
        ) : (
          <span className="st s-success"><Icon name="s-success" small />{analysis ? "No findings" : "Checking"}</span>
        )}
        <span className="wide-only">{plural(steps.length, "step")}, {worst === "none" ? "calls nothing" : worst === "unknown" ? "with unknown effects" : `worst effect: ${worst}`}</span>
        <Lasting steps={lasting} />
        <span className="grow" />
        <span className="num" data-checked={tookMs === null ? undefined : Math.round(tookMs)}>{tookMs === null ? "Checking…" : `Checked in ${Math.round(tookMs)} ms`}</span>
        <span className="wide-only ell">{noWrite ? `Cannot save: ${noWrite}` : "Saving checks that the file on disk is unchanged"}</span>
      </div>
    </footer>
  );
}

/** What stays when the run is rolled back, or may stay. Each name selects its step. */
function Lasting({ steps }: { steps: readonly PlanStepView[] }) {
  const builder = useBuilder();
  if (steps.length === 0) return null;
  const unknown = steps.filter((step) => step.rollback.kind === "unknown").length;
  const words = unknown === 0 ? "cannot be rolled back" : unknown === steps.length ? "may not be rolled back" : `cannot be rolled back, of ${unknown} of them it is unknown`;
  return (
    <span className="wide-only ell b-lasting">
      {plural(steps.length, "step")} {words}:{" "}
      {steps.slice(0, NAMED_MOST).map((step) => (
        <button key={step.id} type="button" className="link" onClick={() => builder.select(step.id)}><SafeText text={step.id} most={40} /></button>
      ))}
      {steps.length > NAMED_MOST && "…"}
    </span>
  );
}

const NAMED_MOST = 3;
