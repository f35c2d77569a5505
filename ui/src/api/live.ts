// What the event stream changes in the query cache.
import type { InfiniteData } from "@tanstack/react-query";
import { stream, type StepEvent } from "./events";
import { queryClient } from "./queries";
import type { RunList, RunSummary, RunView, StepStatus } from "./types";

/** Puts a changed run into a loaded list; the newest page takes new runs. */
export function mergeRun(pages: RunList[], run: RunSummary, accepts: (run: RunSummary) => boolean): RunList[] {
  let found = false;
  const next = pages.map((page) => {
    const at = page.runs.findIndex((other) => other.run_id === run.run_id);
    if (at < 0) return page;
    found = true;
    const runs = [...page.runs];
    if (accepts(run)) runs[at] = run;
    else runs.splice(at, 1);
    return { ...page, runs };
  });
  if (found || !accepts(run)) return found ? next : pages;
  const [first, ...rest] = pages;
  if (!first) return pages;
  const at = first.runs.findIndex((other) => other.started_at <= run.started_at);
  const runs = [...first.runs];
  runs.splice(at < 0 ? runs.length : at, 0, run);
  return [{ ...first, runs }, ...rest];
}

export interface RunFilter {
  status?: string[];
  name?: string;
  text?: string;
  tool?: string;
  since_ms?: number;
}

/** Whether a run of the stream belongs into a list: a text search only updates runs that it shows. */
export function accepts(filter: RunFilter, run: RunSummary): boolean {
  if (filter.status && !filter.status.includes(run.status)) return false;
  if (filter.name && !run.name.includes(filter.name)) return false;
  if (filter.tool && !run.tools?.includes(filter.tool)) return false;
  if (filter.since_ms && Date.parse(run.started_at) < filter.since_ms) return false;
  return true;
}

/** Steps arrive in bursts: a run is read again at once, then at most once a second. */
const REFRESH_MS = 1000;
const refreshed = new Map<string, number>();
const pending = new Map<string, ReturnType<typeof setTimeout>>();
function refreshRunSoon(id: string): void {
  if (pending.has(id)) return;
  const wait = Math.max(0, (refreshed.get(id) ?? 0) + REFRESH_MS - Date.now());
  const timer = setTimeout(() => {
    pending.delete(id);
    refreshed.set(id, Date.now());
    for (const key of ["run", "run-step", "run-steps"]) void queryClient.invalidateQueries({ queryKey: [key, id] });
  }, wait);
  pending.set(id, timer);
}

const STATUS_AFTER: Record<string, StepStatus> = {
  step_started: "running",
  step_opened: "running",
  step_retrying: "running",
  step_succeeded: "success",
  step_failed: "failed",
  step_skipped: "skipped",
  step_cancelled: "cancelled",
  step_in_doubt: "in_doubt",
  step_rolled_back: "rolled_back",
};

/** What an event says is shown before the run is read again. */
export function applyStep(run: RunView, event: StepEvent): RunView {
  // Already in what was read.
  if (event.seq < (run.entries ?? 0)) return run;
  const status = STATUS_AFTER[event.event];
  const at = run.steps.findIndex((step) => step.id === event.step);
  const step = run.steps[at];
  if (!status || !step || step.status === status) return run;
  const time = new Date(event.at_ms).toISOString();
  const steps = [...run.steps];
  const began = status === "running" && step.started_at === null;
  steps[at] = { ...step, status, ...(began ? { started_at: time } : {}), ...(status !== "running" && step.completed_at === null ? { completed_at: time } : {}) };
  return { ...run, steps };
}

function onStep(event: StepEvent): void {
  queryClient.setQueryData<RunView>(["run", event.run_id], (run) => run && applyStep(run, event));
  refreshRunSoon(event.run_id);
}

function onRun(run: RunSummary): void {
  const lists = queryClient.getQueryCache().findAll({ queryKey: ["runs"] });
  for (const { queryKey } of lists) {
    const filter = (queryKey[1] ?? {}) as RunFilter;
    queryClient.setQueryData<InfiniteData<RunList>>(queryKey, (data) => {
      if (!data) return data;
      const known = data.pages.some((page) => page.runs.some((other) => other.run_id === run.run_id));
      if (!known && filter.text) return data;
      return { ...data, pages: mergeRun(data.pages, run, (one) => accepts(filter, one)) };
    });
  }
  if (queryClient.getQueryData(["run", run.run_id])) refreshRunSoon(run.run_id);
}

export function connectStream(): () => void {
  const offs = [
    stream.on("ready", ({ gap }) => {
      if (gap) for (const key of ["runs", "run", "questions"]) void queryClient.invalidateQueries({ queryKey: [key] });
    }),
    stream.on("run", onRun),
    stream.on("questions", () => void queryClient.invalidateQueries({ queryKey: ["questions"] })),
    stream.on("step", onStep),
    stream.on("ended", (event) => refreshRunSoon(event.run_id)),
    stream.on("changed", () => {
      for (const key of ["compositions", "composition", "tools", "servers"])
        void queryClient.invalidateQueries({ queryKey: [key] });
    }),
  ];
  stream.start();
  return () => {
    stream.stop();
    for (const off of offs) off();
  };
}
