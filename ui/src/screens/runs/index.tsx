import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useRef, useState } from "react";
import type { RunSummary } from "@/api/types";
import { announce } from "@/app/announce";
import { useCommands } from "@/app/commands";
import { Screen } from "@/app/Screen";
import { useShortcuts } from "@/app/shortcuts";
import { count, plural, shortId } from "@/lib/format";
import { useNow } from "@/lib/use-now";
import { Button } from "@/parts/Button";
import { Failure } from "@/parts/Failure";
import { Skeleton } from "@/parts/Skeleton";
import { VirtualList, type VirtualListHandle } from "@/parts/VirtualList";
import { isOver } from "@/parts/State";
import { Filters, useSetSearch } from "./Filters";
import { clearMarks, toggleMark, useMarks } from "./marks";
import { NoRuns } from "./NoRuns";
import { filterOf, runsQuery } from "./query";
import { RunRow } from "./Row";
import "./runs.css";
import type { RunsSearch } from "./search";

const ROW = 34;

export default function Runs() {
  const search = useSearch({ from: "/" });
  const marks = useMarks();
  const navigate = useNavigate();
  const query = useInfiniteQuery(runsQuery(useFilter(search)));
  const runs = useMemo(() => query.data?.pages.flatMap((page) => page.runs) ?? [], [query.data]);
  const searched = query.data?.pages.reduce((sum, page) => sum + (page.searched ?? 0), 0) ?? 0;
  const filtered = Object.values(search).some(Boolean);
  const compare = () => {
    const [left, right] = marks;
    if (left && right) void navigate({ to: "/compare", search: { left, right } });
  };
  useCommands([{ id: "compare", group: "Runs", label: "Compare the two marked runs", icon: "i-cmp", off: marks.length === 2 ? null : "mark two with X", run: compare }]);
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = query;
  const more = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  return (
    <Screen
      title="Runs"
      about={runs.length > 0 ? `${count(runs.length)}${query.hasNextPage ? " and more" : ""}${search.q && searched ? `, ${plural(searched, "run")} searched` : ""}` : undefined}
      actions={
        <>
          {marks.length > 0 && <Button kind="ghost" onClick={clearMarks}>Clear marks</Button>}
          <Button icon="i-cmp" off={marks.length === 2 ? null : "mark two runs with X first"} onClick={compare}>
            Compare{marks.length > 0 && ` ${marks.length} of 2`}
          </Button>
          <Link to="/compositions" className="btn pri"><svg className="i" aria-hidden="true"><use href="#i-play" /></svg>Run a composition</Link>
        </>
      }
    >
      <Filters search={search} />
      {query.isPending ? (
        <Skeleton label="Loading runs" rows={18} />
      ) : query.isError && runs.length === 0 ? (
        <div className="pad"><Failure error={query.error} retry={() => void query.refetch()} /></div>
      ) : runs.length === 0 ? (
        <NoRuns filtered={filtered} more={query.hasNextPage ? more : null} searched={searched} />
      ) : (
        <List runs={runs} marks={marks} onEnd={more} onCompare={compare} />
      )}
      <div className="legend">
        <span><kbd>J</kbd><kbd>K</kbd> move</span>
        <span><kbd>Enter</kbd> open</span>
        <span><kbd>F</kbd> failed only</span>
        <span><kbd>X</kbd> mark two, then compare</span>
        <span className="grow" />
        <span>The filters are in the address</span>
      </div>
    </Screen>
  );
}

/** The beginning of the time span is fixed when the filter is chosen. */
function useFilter(search: RunsSearch) {
  const { status, failed, name, tool, span, q } = search;
  return useMemo(() => filterOf({ status, failed, name, tool, span, q }), [status, failed, name, tool, span, q]);
}

interface ListProps {
  runs: RunSummary[];
  marks: readonly string[];
  onEnd: () => void;
  onCompare: () => void;
}

function List({ runs, marks, onEnd, onCompare }: ListProps) {
  const [currentId, setCurrentId] = useState<string | null>(null);
  const list = useRef<VirtualListHandle>(null);
  const navigate = useNavigate();
  const set = useSetSearch();
  const search = useSearch({ from: "/" });
  const now = useNow(runs.some((run) => !isOver(run.status)));
  const found = runs.findIndex((run) => run.run_id === currentId);
  const current = Math.max(0, found);
  const go = (by: number) => {
    const next = found < 0 ? 0 : Math.max(0, Math.min(runs.length - 1, current + by));
    setCurrentId(runs[next]?.run_id ?? null);
    list.current?.scrollTo(next);
  };
  const open = () => {
    const run = runs[current];
    if (run) void navigate({ to: "/runs/$id", params: { id: run.run_id } });
  };
  const mark = () => {
    const run = runs[current];
    if (!run) return;
    const two = toggleMark(run.run_id);
    announce(two.includes(run.run_id) ? `Marked ${shortId(run.run_id)}, ${two.length} of 2` : "Mark removed");
    if (two.length === 2 && two[1] === run.run_id) announce("Two runs are marked: press Enter on Compare, or X again to change");
  };
  useShortcuts({
    j: () => go(1),
    k: () => go(-1),
    ArrowDown: () => go(1),
    ArrowUp: () => go(-1),
    Home: () => go(-runs.length),
    End: () => go(runs.length),
    Enter: (event) => (event.target instanceof HTMLElement && event.target.closest("a, button") ? false : (open(), true)),
    x: mark,
    "Shift+X": onCompare,
    f: () => set({ failed: search.failed ? undefined : true, status: undefined }),
  });
  return (
    <VirtualList
      ref={list}
      className="runs"
      role="grid"
      aria-label="Runs"
      aria-rowcount={runs.length + 1}
      aria-activedescendant={found >= 0 && currentId ? `run-${currentId}` : undefined}
      count={runs.length}
      active={found}
      rowHeight={ROW}
      keyOf={(i) => runs[i]?.run_id ?? String(i)}
      onEnd={onEnd}
      head={<Head />}
      onClick={(event) => {
        const row = (event.target as HTMLElement).closest<HTMLElement>("[data-run]");
        if (!row?.dataset.run) return;
        setCurrentId(row.dataset.run);
        if (!(event.target as HTMLElement).closest("a")) void navigate({ to: "/runs/$id", params: { id: row.dataset.run } });
      }}
      row={(i) => {
        const run = runs[i];
        return run && <RunRow run={run} index={i} current={run.run_id === currentId} marked={marks.includes(run.run_id)} now={now} />;
      }}
    />
  );
}

function Head() {
  return (
    <div role="row" className="runrow head" aria-rowindex={1}>
      <span role="columnheader">Status</span>
      <span role="columnheader">Composition</span>
      <span role="columnheader">About</span>
      <span role="columnheader">Steps</span>
      <span role="columnheader" className="r">Started</span>
      <span role="columnheader" className="r">Duration</span>
      <span role="columnheader" className="wide-only">By</span>
      <span role="columnheader">Id</span>
    </div>
  );
}
