import { Link } from "@tanstack/react-router";
import type { PlanStepView, StepDetail, StepView } from "@/api/types";
import { clock } from "@/lib/format";
import { parentPath } from "@/lib/path";
import { Button } from "@/parts/Button";
import { Icon } from "@/parts/Icon";
import { Question } from "@/parts/Question";
import { SafeText } from "@/parts/SafeText";
import { useRunContext } from "../context";
import { ORIGIN_WORDS } from "../looks";
import { Attempts } from "./Attempts";
import { SourceLines } from "./SourceTab";
import { ValueTree } from "./ValueTree";

interface Props {
  path: string;
  plan: PlanStepView;
  view: StepView | undefined;
  detail: StepDetail | undefined;
}

/** Error first, then arguments, output, attempts, decisions, and what followed. */
export function StepTab({ path, plan, view, detail }: Props) {
  const { model } = useRunContext();
  const wait = model.run.waiting_for?.find((one) => one.step === path);
  return (
    <>
      {view?.error && <StepError path={path} view={view} />}
      {view?.status === "in_doubt" && !view.error && <Doubt />}
      {wait && (
        <div className="asked">
          <Question question={wait} askedAt={view?.started_at ?? model.run.started_at} />
          <Link className="btn pri" to="/inbox" search={{ question: `${model.run.run_id} ${path}` }}>Answer in the inbox</Link>
        </div>
      )}
      {view?.origin ? <Origin view={view} /> : <WhySkipped path={path} plan={plan} view={view} />}
      {plan.tool && <ValueTree path={path} part="input" value={view?.input} template={detail?.template ?? undefined} />}
      {view?.completed_at && view.status !== "failed" && <ValueTree path={path} part="output" value={view.output} />}
      {view?.would && <p className="muted">A dry run: this call {view.would.called ? "was really made, because it only reads" : "was not made"}.</p>}
      {plan.tool && <Attempts path={path} detail={detail} />}
      <Decisions detail={detail} />
      <Consequences path={path} plan={plan} view={view} />
    </>
  );
}

function StepError({ path, view }: { path: string; view: StepView }) {
  const { openRerun, actions } = useRunContext();
  const error = view.error;
  if (!error) return null;
  return (
    <div className="err" role="group" aria-label="Why it failed">
      <div className="eh">
        <Icon name="s-failed" />
        <div>
          <SafeText text={error.message} most={4000} />
          <div className="phase">
            <code>{error.code}</code> in the {error.phase} phase, {error.in_doubt ? "in doubt: it may have done its work" : "not in doubt"}
          </div>
        </div>
      </div>
      <div className="eb">
        <SourceLines path={path} />
        {error.hint && <p><b>What helps: </b><SafeText text={error.hint} most={2000} /></p>}
        <div className="row">
          <Button kind="primary" icon="i-again" off={actions.rerun.off} onClick={() => openRerun(path)}>Re-run from here…</Button>
        </div>
      </div>
    </div>
  );
}

function Doubt() {
  return (
    <div className="find s-in_doubt">
      <div className="find-h"><Icon name="s-in_doubt" /><b>The answer of this call was lost</b></div>
      It may have done its work. Look at its effects before you go on.
    </div>
  );
}

function WhySkipped({ path, plan, view }: Props | { path: string; plan: PlanStepView; view: StepView | undefined }) {
  const { model, select } = useRunContext();
  if (view && view.status !== "skipped") return null;
  const holder = parentPath(path);
  const prefix = holder ? `${holder}/` : "";
  const causes = plan.needs.map((id) => prefix + id).filter((need) => ["failed", "skipped", "cancelled", "in_doubt"].includes(model.byPath.get(need)?.status ?? ""));
  if (!view && !model.over) return <p className="note">Not begun. It needs {plan.needs.length > 0 ? <code><SafeText text={plan.needs.join(", ")} /></code> : "nothing"}.</p>;
  return (
    <div className="note">
      <b>Why it was skipped: </b>
      {view?.reason ? <SafeText text={view.reason} /> : plan.when ? <>its condition <code><SafeText text={plan.when} /></code> was not met</> : "the run ended before it, or another branch was taken"}
      {causes.map((need) => <div key={need}><button type="button" className="link" onClick={() => select(need)}><SafeText text={need} /></button></div>)}
    </div>
  );
}

/** A step of the composition that this run did not perform itself. */
function Origin({ view }: { view: StepView }) {
  const { run } = useRunContext().model;
  const from = view.origin === "reused" ? run.part?.run : null;
  return (
    <div className="note">
      {view.reason ? <SafeText text={view.reason} most={400} /> : view.origin && ORIGIN_WORDS[view.origin]}
      {from && <> <Link to="/runs/$id" params={{ id: from }} search={{ step: view.id }}>Show it there</Link></>}
    </div>
  );
}

function Decisions({ detail }: { detail: StepDetail | undefined }) {
  if (!detail?.decisions.length) return null;
  return (
    <section aria-label="Decisions">
      <div className="sec"><h2>Decisions</h2></div>
      {detail.decisions.map((one, i) => (
        <div key={i} className="att">
          <Icon name="i-person" />
          <span className="num muted">{clock(one.at)}</span>
          <span><SafeText text={one.by} most={60} /> <SafeText text={one.what} most={400} /></span>
        </div>
      ))}
    </section>
  );
}

/** After a failure: what was skipped, what is rolled back, and what cannot be. */
function Consequences({ path, plan, view }: { path: string; plan: PlanStepView; view: StepView | undefined }) {
  const { model, rail } = useRunContext();
  const own = rail.steps.find((step) => step.path === path);
  if (own && view?.status !== "failed")
    return (
      <section aria-label="Rollback">
        <div className="sec"><h2>Rollback</h2></div>
        <p>
          {own.state === "done" && "It was rolled back."}
          {own.state === "running" && "It is being rolled back now."}
          {own.state === "next" && "It will be rolled back."}
          {own.state === "failed" && "Its rollback failed: what it did is still there."}
          {own.state === "impossible" && <>It cannot be rolled back{plan.rollback.kind === "impossible" && <>: <SafeText text={plan.rollback.reason} /></>}.</>}
        </p>
      </section>
    );
  if (view?.status !== "failed" || parentPath(path)) return null;
  const skipped = model.run.steps.filter((step) => step.status === "skipped" && !step.id.includes("/")).map((step) => step.id);
  const names = (state: string) => rail.steps.filter((step) => (state === "stays" ? step.order === null : step.order !== null)).map((step) => step.path).join(", ");
  return (
    <section aria-label="Consequences">
      <div className="sec"><h2>Consequences</h2></div>
      <dl className="dl">
        <dt>Skipped</dt><dd><SafeText text={skipped.join(", ") || "nothing"} /></dd>
        <dt>Rolled back</dt><dd><SafeText text={names("back") || "nothing"} /></dd>
        <dt>Stays</dt><dd><SafeText text={names("stays") || "nothing"} /></dd>
      </dl>
    </section>
  );
}
