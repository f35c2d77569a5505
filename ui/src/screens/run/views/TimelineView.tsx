import { useQuery } from "@tanstack/react-query";
import { memo, useMemo } from "react";
import { stepQuery } from "@/api/queries";
import { duration, plural } from "@/lib/format";
import { itemOf, parentPath } from "@/lib/path";
import { IconButton } from "@/parts/Button";
import { SafeText } from "@/parts/SafeText";
import { StateIcon } from "@/parts/State";
import { useRunContext } from "../context";
import { isRolledBack, isRollingBack, type RunModel } from "../model";
import type { Row } from "../rows";
import { barsOf, barsWithin, tickText, ticks, type Bar, type Span } from "./scale";
import { TreeRows, Twist } from "./TreeRows";
import { useZoom } from "./use-zoom";

/** When each step waited, ran, paused and was rolled back. */
export function TimelineView() {
  const { model, now } = useRunContext();
  const t0 = model.run.started_at ? Date.parse(model.run.started_at) : now;
  const end = useMemo(() => endOf(model, t0, now), [model, t0, now]);
  const whole = Math.max(1, end - t0);
  const { span, area, zoom, fit } = useZoom(whole);
  const total = span.to - span.from;
  const marks = ticks(span);
  const left = (at: number) => `${((at - span.from) / total) * 100}%`;
  const count = model.plan.steps.length;
  const failedAt = failureTime(model);
  const live = !model.over && !model.run.interrupted;
  return (
    <div className="timeline" ref={area}>
      <div className="tl-lines" aria-hidden="true">
        {marks.map((at) => <i key={at} style={{ left: left(at) }} />)}
        {failedAt !== null && isIn(failedAt - t0, span) && <i className="failed-line" style={{ left: left(failedAt - t0) }} />}
        {live && isIn(now - t0, span) && <i className="now-line" style={{ left: left(now - t0) }} />}
      </div>
      <TreeRows
        label="Timeline of the steps"
        className="tl"
        rowHeight={30}
        columns={2}
        head={
          <div role="row" className="trow head" aria-rowindex={1}>
            <span role="columnheader">{plural(count, "step")}, in the order of their needs</span>
            <span role="columnheader" className="ticks num">
              {marks.map((at) => <i key={at} style={{ left: left(at) }}>{tickText(at, total)}</i>)}
            </span>
          </div>
        }
        row={(row, toggle) => (
          <>
            <span role="gridcell" className="nm" style={{ paddingInlineStart: 8 + row.depth * 16 }}>
              <Twist row={row} toggle={toggle} />
              <StateIcon state={row.state} />
              <span className="ell"><SafeText text={row.name} most={80} /></span>
              {row.open !== null && row.kind === "step" && <span className="muted ell">{row.plan.tool ? "composition" : row.plan.kind}</span>}
            </span>
            <span role="gridcell" className="ln">
              <Bars row={row} model={model} t0={t0} from={t0 + span.from} to={t0 + span.to} now={row.view?.completed_at && !isRollingBack(row.view) ? 0 : now} />
            </span>
          </>
        )}
      />
      <div className="tl-foot">
        <Legend />
        <span className="box zoom" role="group" aria-label="Zoom of the timeline">
          <IconButton icon="i-minus" label="Zoom out" kind="ghost" size="small" onClick={() => zoom(false)} />
          <span className="num">{Math.round((whole / total) * 100)} %</span>
          <IconButton icon="i-plus" label="Zoom in" kind="ghost" size="small" onClick={() => zoom(true)} />
          <IconButton icon="i-fit" label="Show everything" kind="ghost" size="small" onClick={fit} />
        </span>
      </div>
    </div>
  );
}

const isIn = (at: number, { from, to }: Span): boolean => at >= from && at <= to;

/** A rollback ends after the last step; what is live ends now. */
function endOf(model: RunModel, t0: number, now: number): number {
  const { run } = model;
  if (!model.over && !run.interrupted) return now + Math.max(500, (now - t0) * 0.03);
  let last = run.completed_at ? Date.parse(run.completed_at) : t0;
  for (const step of run.steps) if (step.completed_at) last = Math.max(last, Date.parse(step.completed_at));
  return last + (last - t0) * 0.08;
}

function failureTime(model: RunModel): number | null {
  const path = model.run.errors[0]?.step;
  const at = path ? model.byPath.get(path)?.completed_at : null;
  return at ? Date.parse(at) : null;
}

/** When everything that a step needs was there. */
function readyAt(model: RunModel, row: Row, t0: number): number | null {
  if (row.kind !== "step") return null;
  const holder = parentPath(row.path);
  const prefix = holder ? `${holder}/` : "";
  const ends = row.plan.needs.map((id) => model.byPath.get(prefix + id)?.completed_at ?? null);
  if (ends.length === 0) return holder ? null : t0;
  if (ends.some((end) => end === null)) return null;
  return Math.max(...ends.map((end) => Date.parse(end ?? "")));
}

interface BarsProps {
  row: Row;
  model: RunModel;
  t0: number;
  /** The time at the left edge, and at the right one. */
  from: number;
  to: number;
  now: number;
}

const Bars = memo(function Bars({ row, model, t0, from, to, now }: BarsProps) {
  const { view } = row;
  const wanted = row.kind === "step" && view !== undefined && !model.loops.has(row.path) && (view.attempts > 1 || isRolledBack(view) || isRollingBack(view));
  const detail = useQuery({ ...stepQuery(model.run.run_id, row.path), enabled: wanted });
  const all = row.kind === "item" ? itemBars(model, row, now) : row.kind === "group" ? groupBars(model, row) : barsOf(view, wanted ? detail.data : undefined, readyAt(model, row, t0), row.state === "waiting", now || Date.now());
  const bars = barsWithin(all, { from, to });
  // A step without bars, such as a skipped one, says why at the left edge.
  if (all.length > 0 && bars.length === 0) return null;
  const part = (time: number) => (time - from) / (to - from);
  const percent = (of: number) => `${of * 100}%`;
  const end = part(Math.max(from, ...bars.filter((bar) => !bar.kind.startsWith("back")).map((bar) => bar.to)));
  const first = part(Math.min(to, ...bars.map((bar) => bar.from)));
  const late = end > 0.72;
  // No room on either side: over the bars, at the right.
  const over = late && first < 0.3;
  return (
    <>
      {bars.map((bar, i) => (
        <i key={i} className={`bar2 ${bar.kind}`} style={{ left: percent(part(bar.from)), width: `max(2px, ${((bar.to - bar.from) / (to - from)) * 100}%)` }} />
      ))}
      <span className={over ? "lab over num" : late ? "lab late num" : "lab num"} style={over ? undefined : late ? { right: percent(1 - first) } : { left: `calc(${percent(end)} + ${bars.some((bar) => bar.kind === "fail") ? 15 : 6}px)` }}>
        <Words row={row} model={model} />
      </span>
    </>
  );
});

function itemBars(model: RunModel, row: Row, now: number): Bar[] {
  const inside = model.run.steps.filter((step) => step.id.startsWith(`${row.path}/`) && step.started_at);
  if (inside.length === 0) return [];
  const from = Math.min(...inside.map((step) => Date.parse(step.started_at ?? "")));
  const to = Math.max(...inside.map((step) => (step.completed_at ? Date.parse(step.completed_at) : now || Date.now())));
  return [{ kind: row.state === "failed" ? "fail" : row.state === "running" ? "live" : "run", from, to }];
}

/** One bar over a range of items, as far as the preview knows them. */
function groupBars(model: RunModel, row: Row): Bar[] {
  const match = /^(.*)\[(\d+)–(\d+)\]$/.exec(row.path);
  if (!match) return [];
  let from = Infinity;
  let to = 0;
  for (const step of model.run.steps) {
    if (!step.started_at || !step.completed_at) continue;
    const item = itemOf(step.id, match[1] ?? "");
    if (item === null || item < Number(match[2]) || item > Number(match[3])) continue;
    from = Math.min(from, Date.parse(step.started_at));
    to = Math.max(to, Date.parse(step.completed_at));
  }
  return to > 0 ? [{ kind: "run", from, to }] : [];
}

function Words({ row, model }: { row: Row; model: RunModel }) {
  const { view, state } = row;
  const loop = model.loops.get(row.path);
  if (state === "skipped") return <>Skipped{view?.reason && <>: <SafeText text={view.reason} most={80} /></>}</>;
  const range = row.kind === "group" && /(\d+)–(\d+)/.exec(row.name);
  if (range) return <>{plural(Number(range[2]) - Number(range[1]) + 1, "item")}</>;
  if (!view?.started_at) return null;
  const words = [duration(view.duration_ms)];
  if (loop) words.push(`${plural(loop.total, "item")}${loop.failed.length ? `, ${loop.failed.length} failed` : ""}`);
  if (view.attempts > 1) words.push(plural(view.attempts, "call"));
  if (row.plan.rollback.kind === "impossible" && state === "success" && model.run.status.startsWith("roll")) words.push("cannot be rolled back");
  return (
    <>
      {words.join(", ")}
      {view.error && <>: <SafeText text={view.error.message} most={60} /></>}
    </>
  );
}

function Legend() {
  const kinds: [Bar["kind"], string][] = [["wait", "waiting"], ["run", "running"], ["live", "under way"], ["fail", "failed attempt"], ["pause", "pause before retry"], ["back", "rollback"]];
  return (
    <div className="legend">
      {kinds.map(([kind, word]) => (
        <span key={kind}><i className={`bar2 ${kind}`} aria-hidden="true" />{word}</span>
      ))}
    </div>
  );
}
