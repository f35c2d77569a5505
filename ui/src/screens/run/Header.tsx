import { Link } from "@tanstack/react-router";
import type { RunPart } from "@/api/types";
import { clock, duration, plural, shortId } from "@/lib/format";
import { outermost } from "@/lib/path";
import { Button, IconButton } from "@/parts/Button";
import { CopyButton } from "@/parts/Copy";
import { Icon } from "@/parts/Icon";
import { EffectMark } from "@/parts/Marks";
import { Menu } from "@/parts/Menu";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { StatePill, stateWord } from "@/parts/State";
import { CompareMenu } from "./CompareMenu";
import { useRunContext } from "./context";
import { fileName, usePlace } from "./panel/SourceTab";
import { useCopyItems } from "./run-commands";
import type { RunViewName } from "./search";

export function RunHead() {
  const { model: { run }, rail } = useRunContext();
  const rolling = rail.active && run.status === "running";
  return (
    <div className="crumb">
      <Link to="/" className="wide-only">Runs</Link>
      <span className="wide-only">/</span>
      <Link to="/" search={{ name: run.name }} className="ell"><SafeText text={run.name} most={60} /></Link>
      <span>/</span>
      <h1><code>{shortId(run.run_id)}</code></h1>
      <CopyButton text={run.run_id} label="Copy the id of the run" />
      {run.interrupted ? (
        <StatePill state="in_doubt">Interrupted</StatePill>
      ) : (
        <StatePill state={run.status}>{rolling ? `Running: rollback ${Math.min(rail.done + 1, rail.total)} of ${rail.total}` : undefined}</StatePill>
      )}
      {run.part && <PartTag part={run.part} />}
      {run.principal && <span className="muted wide-only ell" title="The principal that started the run">by <SafeText text={run.principal} most={60} /></span>}
    </div>
  );
}

/** What of the composition this run performs. */
export function PartTag({ part }: { part: RunPart }) {
  const pinned = part.pinned?.length ?? 0;
  return (
    <span className="tag" title="A run of a part of its composition">
      {/* One box: those of a tag have gaps between them. */}
      <span className="ell">
        {part.until ? <>to <SafeText text={part.until} most={40} /></> : part.only ? <>only <SafeText text={part.only} most={40} /></> : null}
        {pinned > 0 && <>{part.until || part.only ? ", " : ""}{pinned} pinned</>}
      </span>
    </span>
  );
}

export function RunActionsBar() {
  const { model: { run }, actions, selected, openRerun } = useRunContext();
  const copyItems = useCopyItems();
  const { cancel, resume, rollback, rerun } = actions;
  const step = selected ? outermost(selected) : null;
  return (
    <>
      <Button icon="i-stop" off={cancel.off} busy={cancel.busy} onClick={cancel.run}>Cancel</Button>
      {resume.offered && <Button icon="i-play" kind="primary" off={resume.off} busy={resume.busy} onClick={resume.run}>Resume</Button>}
      <Button icon="i-again" className="rerun" off={rerun.off} busy={rerun.busy} onClick={() => openRerun(selected)}>
        {step ? <>Re-run from <code className="ell"><SafeText text={step} most={24} /></code></> : "Re-run"}
      </Button>
      <CompareMenu run={run} />
      <Menu label="Copy as" items={copyItems} trigger={<Button icon="i-copy" className="wide-only">Copy as</Button>} />
      <Menu
        label="More actions"
        trigger={<IconButton icon="i-dots" label="More actions" />}
        items={[
          { label: "Roll back what it did", icon: "i-rb", off: rollback.off, onSelect: rollback.run },
          { label: "Re-run everything…", icon: "i-again", off: rerun.off, onSelect: () => openRerun(null) },
          null,
          ...copyItems,
        ]}
      />
    </>
  );
}

/** One line: which step failed, why, and where it is written. */
export function FailureLine() {
  const { model: { run }, select } = useRunContext();
  const error = run.errors[0];
  const { source, span } = usePlace(error?.step ?? "");
  if (!error) return null;
  const place = error.step && span && `${fileName(source?.file ?? null) ?? run.name}:${span.line}`;
  return (
    <div className="banner s-failed" role="status">
      <Icon name="s-failed" />
      <span className="nowrap">
        {error.step ? <button type="button" className="link strong" onClick={() => select(error.step)}><code><SafeText text={error.step} most={60} /></code></button> : "The run"} failed
        {error.attempts > 1 && ` after ${error.attempts} attempts`}:
      </span>
      <span className="t ell" title={error.message.slice(0, 1000)}><SafeText text={error.message} most={400} /></span>
      <span className="grow" />
      {place && <button type="button" className="link nowrap" onClick={() => select(error.step, "source")}><SafeText text={place} most={60} /></button>}
      <code>{error.code}</code>
      {run.errors.length > 1 && <span className="nowrap">and {plural(run.errors.length - 1, "more", "more")}</span>}
    </div>
  );
}

export function InterruptedBanner() {
  const { model: { run, byPath } } = useRunContext();
  if (!run.interrupted && !run.set_aside) return null;
  const done = [...new Set(byPath.values())].filter((step) => step.status === "success").length;
  const open = [...new Set(byPath.values())].filter((step) => step.status === "running" && step.tool).length;
  return (
    <div className="banner s-in_doubt" role="status">
      <Icon name="s-in_doubt" />
      <span className="nowrap">{run.set_aside ? "Set aside" : "Interrupted"}:</span>
      <span className="t">
        {run.set_aside ? <SafeText text={run.set_aside} most={300} /> : "the process that ran it is gone."} {plural(done, "step")} completed and {done === 1 ? "is" : "are"} kept
        {open > 0 && `; ${plural(open, "call")} had no answer yet`}. Resume goes on from there.
      </span>
    </div>
  );
}

export function WaitingBanner() {
  const { model: { run }, select } = useRunContext();
  const wait = run.waiting_for?.[0];
  if (!wait) return null;
  return (
    <div className="banner s-waiting" role="status">
      <Icon name="s-waiting" />
      <span className="nowrap">Waits:</span>
      <span className="t ell"><SafeText text={wait.message} most={300} /></span>
      <span className="grow" />
      <button type="button" className="link nowrap" onClick={() => select(wait.step)}>Show the step</button>
      <Link to="/inbox" search={{ question: `${run.run_id} ${wait.step}` }}>Answer in the inbox</Link>
    </div>
  );
}

export function FactsBar({ view, onView }: { view: RunViewName; onView: (view: RunViewName) => void }) {
  const { model, now, select } = useRunContext();
  const { run, plan } = model;
  const took = model.over || run.interrupted ? run.duration_ms : Math.max(run.duration_ms, run.started_at ? now - Date.parse(run.started_at) : 0);
  const own = plan.steps.filter((step) => model.byPath.get(step.id)?.origin !== "left_out");
  const top = own.length;
  const done = own.filter((step) => !["pending", "running"].includes(model.byPath.get(step.id)?.status ?? "pending")).length;
  return (
    <div className="facts">
      <Segmented
        label="View"
        value={view}
        onChange={onView}
        options={[
          { value: "graph", label: "Graph", icon: "i-graph", title: "1" },
          { value: "timeline", label: "Timeline", icon: "i-time", title: "2" },
          { value: "outline", label: "Outline", icon: "i-list", title: "3" },
        ]}
      />
      <span className="fact num"><span>Started</span> {clock(run.started_at)}</span>
      <span className="fact num"><span>Duration</span> <b className={model.over || run.interrupted ? undefined : "running-fg"}>{duration(took)}</b></span>
      <span className="fact num"><span>Steps</span> {done} of {top}</span>
      <span className="fact wide-only"><span>Effect</span> <EffectMark effect={plan.effect} /></span>
      <span className="fact wide-only"><span>Plan</span> <code>{plan.hash.slice(0, 8)}</code></span>
      <span className="grow" />
      <button type="button" className="btn ghost sm" onClick={() => select(null, "input")}>Input<Icon name="i-right" small /></button>
      <button type="button" className="btn ghost sm" onClick={() => select(null, "output")} title={model.over ? undefined : stateWord(run.status)}>Output<Icon name="i-right" small /></button>
    </div>
  );
}
