import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, unwrap } from "@/api/client";
import type { ComparedStep, Comparison } from "@/api/types";
import { Screen } from "@/app/Screen";
import { useShortcuts } from "@/app/shortcuts";
import { clock, duration, plural, shortId } from "@/lib/format";
import { IconButton } from "@/parts/Button";
import { Empty } from "@/parts/Empty";
import { Failure } from "@/parts/Failure";
import { SafeText } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import { State } from "@/parts/State";
import { VirtualList } from "@/parts/VirtualList";
import "./compare.css";
import { Differences } from "./Differences";
import { delta, differs, verdict } from "./rows";

export default function Compare() {
  const { left, right } = useSearch({ from: "/compare" });
  const query = useQuery({
    queryKey: ["compare", left, right],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{id}/compare", { params: { path: { id: left ?? "" }, query: { with: right ?? "" } } })),
    enabled: !!left && !!right,
  });
  if (!left || !right)
    return (
      <Screen title="Compare">
        <Empty title="Two runs are needed">
          <p>In <Link to="/">Runs</Link>, mark two with <kbd>X</kbd>, then choose Compare.</p>
        </Empty>
      </Screen>
    );
  return (
    <Screen title="Compare" about={query.data && about(query.data)}>
      {query.data ? <Loaded data={query.data} /> : query.error ? <div className="pad"><Failure error={query.error} retry={() => void query.refetch()} /></div> : <Skeleton label="Comparing" />}
    </Screen>
  );
}

function about(data: Comparison): string {
  const count = data.steps.filter(differs).length;
  return `${plural(count, "step")} of ${data.steps.length} ${count === 1 ? "differs" : "differ"}${data.same_plan ? "" : "; the plans are not the same"}${data.steps_left_out ? `; ${plural(data.steps_left_out, "step")} not listed` : ""}`;
}

function Loaded({ data }: { data: Comparison }) {
  const search = useSearch({ from: "/compare" });
  const navigate = useNavigate({ from: "/compare" });
  const set = (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true });
  const steps = useMemo(() => (search.differing ? data.steps.filter(differs) : data.steps), [data, search.differing]);
  const at = steps.findIndex((step) => step.id === search.step);
  const go = (to: number) => set({ step: steps[Math.max(0, Math.min(steps.length - 1, to))]?.id });
  useShortcuts({ j: () => go(at + 1), k: () => go(at - 1), ArrowDown: () => go(at + 1), ArrowUp: () => go(at - 1), Escape: () => set({ step: undefined }) });
  const chosen = steps[at];
  return (
    <>
      <div className="cmp-heads">
        <Side data={data} side="left" />
        <IconButton icon="i-cmp" label="Swap left and right" onClick={() => set({ left: search.right, right: search.left })} />
        <Side data={data} side="right" />
      </div>
      <div className="bar">
        <button type="button" className={search.differing ? "chip" : "chip on"} aria-pressed={!search.differing} onClick={() => set({ differing: undefined })}>All steps <span className="num">{data.steps.length}</span></button>
        <button type="button" className={search.differing ? "chip on" : "chip"} aria-pressed={!!search.differing} onClick={() => set({ differing: true })}>Only what differs <span className="num">{data.steps.filter(differs).length}</span></button>
      </div>
      <div className="cmp-split">
        {steps.length === 0 ? (
          <Empty title="Nothing differs"><p>Every step has the same status, tool, attempts, input, output and error.</p></Empty>
        ) : (
          <VirtualList
            role="grid"
            aria-label="Steps of both runs"
            aria-rowcount={steps.length + 1}
            aria-activedescendant={chosen ? `cmp-${chosen.id}` : undefined}
            active={at}
            count={steps.length}
            rowHeight={34}
            head={<Head />}
            row={(i) => {
              const step = steps[i];
              return step && <Row step={step} index={i} on={i === at} onSelect={() => set({ step: step.id })} />;
            }}
          />
        )}
        <Differences step={chosen} data={data} />
      </div>
    </>
  );
}

function Side({ data, side }: { data: Comparison; side: "left" | "right" }) {
  const run = data[side];
  const by = side === "right" ? delta(data.left.duration_ms, data.right.duration_ms) : "";
  return (
    <div className="cmp-side">
      <State state={run.status} />
      <Link to="/runs/$id" params={{ id: run.run_id }} className="ell"><SafeText text={run.name} most={60} /> <code>{shortId(run.run_id)}</code></Link>
      <span className="muted num">{clock(run.started_at)}, {duration(run.duration_ms)}</span>
      {by && <span className={by.startsWith("+") ? "slower num" : "faster num"}>{by}</span>}
    </div>
  );
}

function Head() {
  return (
    <div role="row" className="cmp-row head" aria-rowindex={1}>
      <span role="columnheader">Step</span>
      <span role="columnheader">Left</span>
      <span role="columnheader" className="r">Time</span>
      <span role="columnheader">Right</span>
      <span role="columnheader" className="r">Time</span>
      <span role="columnheader" className="r">Change</span>
      <span role="columnheader">Verdict</span>
    </div>
  );
}

function Row({ step, index, on, onSelect }: { step: ComparedStep; index: number; on: boolean; onSelect: () => void }) {
  const { left, right } = step;
  return (
    <div id={`cmp-${step.id}`} role="row" aria-rowindex={index + 2} aria-selected={on} className={`cmp-row${on ? " sel" : ""}${differs(step) ? " differs" : ""}`} onClick={onSelect}>
      <span role="gridcell" className="ell"><SafeText text={step.id} most={120} /></span>
      <span role="gridcell">{left ? <State state={left.status} /> : <span className="muted">absent</span>}</span>
      <span role="gridcell" className="num r">{left && duration(left.duration_ms)}</span>
      <span role="gridcell">{right ? <State state={right.status} /> : <span className="muted">absent</span>}</span>
      <span role="gridcell" className="num r">{right && duration(right.duration_ms)}</span>
      <span role="gridcell" className="num r">{left && right && delta(left.duration_ms, right.duration_ms)}</span>
      <span role="gridcell" className={differs(step) ? "ell" : "ell muted"}>{verdict(step)}</span>
    </div>
  );
}
