import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { memo } from "react";
import { questionsQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { clock, duration, shortId } from "@/lib/format";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { State, isOver } from "@/parts/State";

interface Props {
  run: RunSummary;
  current: boolean;
  marked: boolean;
  now: number;
  index: number;
}

export const RunRow = memo(
  function RunRow({ run, current, marked, now, index }: Props) {
    const live = run.status === "running" && !run.interrupted;
    const over = isOver(run.status) || run.interrupted;
    const took = over ? run.duration_ms : Math.max(run.duration_ms, now - Date.parse(run.started_at));
    return (
      <div id={`run-${run.run_id}`} role="row" aria-rowindex={index + 2} aria-selected={current} className={`runrow${current ? " sel" : ""}${live ? " live-row" : ""}`} data-run={run.run_id}>
        <span role="gridcell">{run.interrupted ? <State state="in_doubt">Interrupted</State> : <State state={run.status} />}</span>
        <span role="gridcell" className="ell">
          <Link to="/runs/$id" params={{ id: run.run_id }} tabIndex={-1} className="plain">
            <SafeText text={run.name} most={120} />
          </Link>
        </span>
        <span role="gridcell" className="ell about"><About run={run} /></span>
        <span role="gridcell"><Progress run={run} live={live} /></span>
        <span role="gridcell" className="num r">{clock(run.started_at)}</span>
        <span role="gridcell" className={`num r${live ? " running-fg" : ""}`}>{duration(took)}</span>
        <span role="gridcell" className="ell wide-only"><SafeText text={run.principal ?? ""} most={60} /></span>
        <span role="gridcell" className="idcell">
          <code>{shortId(run.run_id)}</code>
          {marked && <Icon name="i-cmp" small label="marked to compare" />}
        </span>
      </div>
    );
  },
  (a, b) => a.run === b.run && a.current === b.current && a.marked === b.marked && a.index === b.index && (isOver(b.run.status) || a.now === b.now),
);

const WAITS: Record<string, string> = { call: "Asks: may it call a tool?", run: "Asks: may it run?", approval: "Asks for approval", doubt: "A call is in doubt: did it do its work?" };

function About({ run }: { run: RunSummary }) {
  if (run.set_aside) return <>Set aside: <SafeText text={run.set_aside} most={200} /></>;
  if (run.interrupted) return <>Its process is gone. Open it to resume.</>;
  if (run.status === "waiting") return <Waits id={run.run_id} />;
  return <span className="tool muted"><SafeText text={(run.tools ?? []).join("  ")} most={200} /></span>;
}

/** What it asks: the questions are loaded already, for their number in the navigation. */
function Waits({ id }: { id: string }) {
  const asked = useQuery(questionsQuery).data?.questions.find((one) => one.run_id === id);
  return <>{(asked && WAITS[asked.question.kind]) || "Waits for a person or a time"}</>;
}

const CELLS = 18;

function Progress({ run, live }: { run: RunSummary; live: boolean }) {
  const total = run.steps_total ?? null;
  const done = run.steps_done ?? null;
  if (done === null) return total === null ? null : <span className="num">{total}</span>;
  const words = total === null ? `${done}` : `${done} of ${total}`;
  if (!live || !total) return <span className="num">{words}</span>;
  const cells = Math.min(total, CELLS);
  const full = Math.floor((done / total) * cells);
  return (
    <span className="progress">
      <span className="prog" aria-hidden="true">
        {Array.from({ length: cells }, (_, i) => <i key={i} className={i < full ? "ok" : i === full ? "run" : undefined} />)}
      </span>
      <span className="num">{words}</span>
    </span>
  );
}
