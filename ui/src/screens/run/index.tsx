import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { announce } from "@/app/announce";
import { Screen } from "@/app/Screen";
import { useShortcuts } from "@/app/shortcuts";
import { shortId } from "@/lib/format";
import { itemOf, parentPath } from "@/lib/path";
import { useNow } from "@/lib/use-now";
import { Failure } from "@/parts/Failure";
import { Skeleton } from "@/parts/Skeleton";
import { stateWord } from "@/parts/State";
import { useRunActions } from "./actions";
import { RunCtx, type RunContext } from "./context";
import { FactsBar, FailureLine, InterruptedBanner, RunActionsBar, RunHead, WaitingBanner } from "./Header";
import type { RunModel } from "./model";
import { Panel } from "./panel/Panel";
import { RerunDialog } from "./RerunDialog";
import { railOf } from "./rollback";
import { useRunCommands } from "./run-commands";
import "./run.css";
import { VIEWS, type PanelTab, type RunViewName } from "./search";
import { useRun } from "./use-run";
import { OutlineView } from "./views/OutlineView";
import { TimelineView } from "./views/TimelineView";

const GraphView = lazy(() => import("./views/GraphView"));

export default function RunScreen() {
  const { id } = useParams({ from: "/runs/$id" });
  const search = useSearch({ from: "/runs/$id" });
  const { model, error, retry } = useRun(id, search.step ?? null);
  if (model) return <Loaded key={id} model={model} />;
  return (
    <Screen title={`Run ${shortId(id)}`}>
      {error ? <div className="pad"><Failure error={error} retry={retry} /></div> : <Skeleton label="Loading the run" />}
    </Screen>
  );
}

function useSelection() {
  const navigate = useNavigate({ from: "/runs/$id" });
  const select = useCallback(
    (step: string | null, tab?: PanelTab) => void navigate({ search: (now) => ({ ...now, step: step ?? undefined, tab, attempt: undefined }), replace: true }),
    [navigate],
  );
  const show = useCallback((view: RunViewName) => {
    rememberView(view);
    void navigate({ search: (now) => ({ ...now, view }), replace: true });
  }, [navigate]);
  return { select, show };
}

function Loaded({ model }: { model: RunModel }) {
  const search = useSearch({ from: "/runs/$id" });
  const { select, show } = useSelection();
  const [rerun, setRerun] = useState<{ from: string | null } | null>(null);
  const { run } = model;
  const actions = useRunActions(run);
  const clock = useNow(!model.over && !run.interrupted, 500);
  const now = run.interrupted ? lastTime(model) : clock;
  const rail = useMemo(() => railOf(model), [model]);
  const selected = search.step ?? null;
  const openRerun = useCallback((from: string | null) => setRerun({ from }), []);
  const context: RunContext = { model, rail, actions, now, selected, tab: search.tab, select, openRerun };
  const view = search.view ?? defaultView();
  useKeys(context, show);
  useRunCommands(context);
  useSpoken(model);
  return (
    <RunCtx value={context}>
      <Screen title={`${run.name} ${shortId(run.run_id)}`} head={<RunHead />} actions={<RunActionsBar />}>
        {actions.error ? <div className="pad"><Failure error={actions.error} /></div> : null}
        <InterruptedBanner />
        <FailureLine />
        <WaitingBanner />
        <FactsBar view={view} onView={show} />
        <div className="split">
          <div className="view">
            <Suspense fallback={<Skeleton label="Loading the graph" />}>
              {view === "graph" && <GraphView />}
              {view === "timeline" && <TimelineView />}
              {view === "outline" && <OutlineView />}
            </Suspense>
          </div>
          <Panel />
        </div>
        {rerun && <RerunDialog path={rerun.from} onClose={() => setRerun(null)} />}
      </Screen>
    </RunCtx>
  );
}

/** How far an interrupted run came. */
function lastTime(model: RunModel): number {
  const times = model.run.steps.flatMap((step) => [step.started_at, step.completed_at]).filter((at) => at !== null);
  return Math.max(0, ...times.map((at) => Date.parse(at)));
}

/** A reader who asked for the outline once gets it again; the graph is a picture. */
function defaultView(): RunViewName {
  try {
    const kept = localStorage.getItem("segue-run-view");
    return VIEWS.find((one) => one === kept) ?? "graph";
  } catch {
    return "graph";
  }
}

function rememberView(view: RunViewName): void {
  try {
    localStorage.setItem("segue-run-view", view);
  } catch {
    // Without storage the graph comes first.
  }
}

function useKeys({ model, selected, select, openRerun }: RunContext, show: (view: RunViewName) => void): void {
  const step = (by: number) => () => {
    const loop = selected && loopOf(model, selected);
    if (!loop) return false;
    const item = itemOf(selected, loop.path) ?? (by > 0 ? -1 : loop.total);
    const next = Math.max(0, Math.min(loop.total - 1, item + by));
    const rest = item >= 0 && item < loop.total ? selected.slice(`${loop.path}[${item}]`.length) : "";
    select(`${loop.path}[${next}]${rest}`);
    announce(`Item ${next} of ${loop.path}`);
    return true;
  };
  useShortcuts({
    "1": () => show("graph"),
    "2": () => show("timeline"),
    "3": () => show("outline"),
    "[": step(-1),
    "]": step(1),
    "Shift+R": () => openRerun(selected),
    Escape: () => select(null),
  });
}

/** The innermost loop around a path, or the loop itself. */
function loopOf(model: RunModel, path: string) {
  for (let at: string | null = path; at; at = parentPath(at)) {
    const loop = model.loops.get(at);
    if (loop) return loop;
  }
  return null;
}

/** Says when the run changes its state, and when a step fails. */
function useSpoken(model: RunModel): void {
  const before = useRef<{ status: string; errors: number } | null>(null);
  const { status, errors } = model.run;
  useEffect(() => {
    const was = before.current;
    before.current = { status, errors: errors.length };
    if (!was) return;
    if (was.status !== status) announce(`Run: ${stateWord(status)}`);
    else if (errors.length > was.errors) announce(`${errors.at(-1)?.step ?? "A step"} failed`);
  }, [status, errors]);
}
