import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { memo, useEffect, useMemo, useRef } from "react";
import { runPlanQuery, runQuery, toolsQuery } from "@/api/queries";
import type { Impact, Question } from "@/api/types";
import { clock, duration, plural, relative, shortId } from "@/lib/format";
import { Button } from "@/parts/Button";
import { CopyButton } from "@/parts/Copy";
import { EffectMark } from "@/parts/Marks";
import { SafeText, ToolName } from "@/parts/SafeText";
import { StateIcon, StatePill } from "@/parts/State";
import { WholeText } from "@/parts/WholeText";
import type { Answered } from "./send-answer";
import { Answer } from "./Answer";
import { Covers } from "./Covers";
import { fateOf, keyOf, names, title, wordsOf } from "./words";

export function Detail({ data, now }: { data: Question; now: number }) {
  const { question } = data;
  const words = wordsOf(data);
  const tool = useQuery(toolsQuery).data?.tools.find((one) => one.id === question.tool);
  return (
    <article className="qdetail" aria-label="Question">
      <div className="qscroll" tabIndex={0} role="region" aria-label="What is asked">
        <div className="row">
          <StatePill state={question.kind === "doubt" ? "in_doubt" : "waiting"}>{words.kind}</StatePill>
          <span className="grow" />
          {data.expires_at && <Expiry at={data.expires_at} now={now} />}
        </div>
        <Heading data={data} />
        <p className="t2">
          Asked {relative(data.asked_at, now)}{data.principal && <> by <b><SafeText text={data.principal} most={120} /></b></>}, in run{" "}
          <Link to="/runs/$id" params={{ id: data.run_id }} search={{ step: question.step }} title={data.run_id}>{shortId(data.run_id)}</Link> of <b><SafeText text={data.name} most={120} /></b>, step <code><SafeText text={question.step} most={400} /></code>.
        </p>
        {question.tool && <Facts data={data} description={tool?.description ?? null} effect={tool?.effect as Impact | undefined} />}
        {question.kind === "run" ? <Whole label="Input of the run" value={question.args} /> : question.tool && <Whole label="Full arguments" value={question.args} />}
        <Covers data={data} />
        <Consequences data={data} />
        <Standing data={data} />
      </div>
      <Answer key={keyOf(data)} data={data} outputSchema={tool?.output_schema ?? null} />
    </article>
  );
}

function Heading({ data }: { data: Question }) {
  const { text, tool, name } = title(data);
  const { kind, message } = data.question;
  if (kind === "run") return <h2>May <code><SafeText text={name} most={200} /></code> run, with everything that it calls?</h2>;
  if (kind === "call") return <h2>May <code><SafeText text={name} most={200} /></code> call <ToolName tool={tool ?? ""} />?</h2>;
  if (kind === "doubt")
    return (
      <>
        <h2>Did <ToolName tool={tool ?? ""} /> do its work?</h2>
        <p className="asked"><SafeText text={message} most={Infinity} /></p>
      </>
    );
  return <h2 className="asked">“<SafeText text={text} most={Infinity} />”</h2>;
}

function Expiry({ at, now }: { at: string; now: number }) {
  const left = Date.parse(at) - now;
  return (
    <span className="muted num" title={clock(at)}>
      {left > 0 ? <>Expires in <b className="soon">{duration(left)}</b>, then it counts as denied unless the composition says otherwise</> : "It has expired"}
    </span>
  );
}

function Facts({ data, description, effect }: { data: Question; description: string | null; effect: Impact | undefined }) {
  const { tool, covers } = data.question;
  const main = (covers ?? []).find((one) => one.tool === tool && !one.takes_back);
  const known: Impact = main?.effect ?? effect ?? "unknown";
  const back = (covers ?? []).filter((one) => one.takes_back);
  const lasting = main ? !main.can_be_undone : null;
  return (
    <dl className="qfacts">
      <div>
        <dt>Tool</dt>
        <dd><ToolName tool={tool ?? ""} /></dd>
        {description && <dd className="t2"><SafeText text={description} most={600} /></dd>}
      </div>
      <div className={known === "destroys" || known === "unknown" ? "alarm" : undefined}>
        <dt>Effect</dt>
        <dd>{known === "none" ? "calls nothing" : <EffectMark effect={known} />}</dd>
        {known === "unknown" && <dd className="t2">Its effect is not declared, so the worst is assumed.</dd>}
      </div>
      <div className={lasting ? "alarm" : undefined}>
        <dt>Rollback</dt>
        <dd>{lasting === null ? "not known here" : lasting ? <b>Cannot be rolled back</b> : back.length > 0 ? <>by {back.map((one) => <ToolName key={one.tool} tool={one.tool} />)}</> : "Can be rolled back"}</dd>
      </div>
    </dl>
  );
}

/** A value, whole: nothing that a yes allows is hidden. */
const Whole = memo(function Whole({ label, value }: { label: string; value: unknown }) {
  const text = useMemo(() => JSON.stringify(value ?? null, null, 2), [value]);
  const lines = useMemo(() => text.split("\n").length, [text]);
  return (
    <section className="qwhole">
      <div className="row">
        <h3>{label}</h3>
        <span className="grow" />
        <span className="muted">{plural(lines, "line")}, nothing is cut</span>
        <CopyButton text={text} label={`Copy ${label.toLowerCase()}`} />
      </div>
      <WholeText text={text} label={label} />
    </section>
  );
});

function Consequences({ data }: { data: Question }) {
  const words = wordsOf(data);
  const run = useQuery(runQuery(data.run_id)).data;
  const plan = useQuery(runPlanQuery(data.run_id)).data;
  const fate = run && plan && data.question.kind !== "doubt" ? fateOf(plan, run) : null;
  return (
    <div className="qtwo">
      <section>
        <h3>{data.question.kind === "doubt" ? "If it did its work" : "If you say yes"}</h3>
        <p>{words.ifYes}</p>
      </section>
      <section>
        <h3>{data.question.kind === "doubt" ? "If it did not" : "If you say no"}</h3>
        <p>
          {words.ifNo}
          {fate && fate.back.length > 0 && <> {plural(fate.back.length, "step is", "steps are")} rolled back: <code><SafeText text={names(fate.back)} most={400} /></code>.</>}
          {fate && fate.stay.length > 0 && <> {fate.rollsBack ? "These stay" : "Nothing is rolled back; these stay"}: <code><SafeText text={names(fate.stay)} most={400} /></code>.</>}
          {fate && fate.back.length + fate.stay.length === 0 && " No finished step has changed anything."}
        </p>
      </section>
    </div>
  );
}

function Standing({ data }: { data: Question }) {
  const run = useQuery(runQuery(data.run_id)).data;
  const top = run?.steps.filter((step) => !step.id.includes("/") && !step.id.includes("[")) ?? [];
  if (top.length === 0) return null;
  return (
    <section>
      <h3>Where the run stands</h3>
      <ol className="qsteps">
        {top.slice(0, 40).map((step) => (
          <li key={step.id} className={data.question.step === step.id || data.question.step.startsWith(`${step.id}[`) || data.question.step.startsWith(`${step.id}/`) ? "on" : undefined}>
            <StateIcon state={step.status} />
            <span className="ell"><SafeText text={step.id} most={80} /></span>
          </li>
        ))}
        {top.length > 40 && <li className="muted">and {top.length - 40} more</li>}
      </ol>
    </section>
  );
}

interface GoneProps {
  data: Question | undefined;
  done: Answered | undefined;
  next: string | undefined;
  onNext: (key: string) => void;
}

/** After an answer, of this person or another. The next question opens only when it is asked for. */
export function Gone({ data, done, next, onNext }: GoneProps) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (done) box.current?.focus();
  }, [done]);
  return (
    <div className="empty" ref={box} tabIndex={-1}>
      <div className="empty-in">
        <h2>{done ? `You answered ${done.yes ? "yes" : "no"}` : "This question is no longer open"}</h2>
        <p>{done ? "The answer is in the run’s journal, with your name." : "Somebody answered it, it expired, or the run ended."}</p>
        <div className="row">
          {data && <Link to="/runs/$id" params={{ id: data.run_id }} search={{ step: data.question.step }} className="btn">Open the run</Link>}
          {next && <Button kind="primary" keys="J" onClick={() => onNext(next)}>Next question</Button>}
        </div>
      </div>
    </div>
  );
}
