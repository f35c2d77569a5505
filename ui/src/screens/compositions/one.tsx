import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useCallback, useEffect, useMemo, useState } from "react";
import { compositionQuery } from "@/api/queries";
import type { CompositionDetail } from "@/api/types";
import { useCommands } from "@/app/commands";
import { Screen } from "@/app/Screen";
import { useShortcuts } from "@/app/shortcuts";
import { Looks } from "@/graph/looks";
import { plainText } from "@/lib/safe-text";
import { Button } from "@/parts/Button";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { PlanTable } from "@/parts/PlanTable";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { Skeleton } from "@/parts/Skeleton";
import { About } from "./About";
import "@/parts/plan-panes.css";
import "./compositions.css";
import { looksOf, placesOf, spanOf, stepAt } from "./places";
import { RunPane } from "./RunPane";
import { TextPane } from "./TextPane";

const PlanGraph = lazy(() => import("@/graph/PlanGraph").then((module) => ({ default: module.PlanGraph })));

export default function Composition() {
  const { name } = useParams({ from: "/compositions/$name" });
  const query = useQuery(compositionQuery(name));
  const { view = "graph" } = useSearch({ from: "/compositions/$name" });
  const navigate = useNavigate({ from: "/compositions/$name" });
  const open = useCallback((next: "graph" | "plan" | "run") => void navigate({ search: (old) => ({ ...old, view: next }), replace: true }), [navigate]);
  const go = useNavigate();
  const edit = () => void go({ to: "/edit", search: { from: `composition:${name}` } });
  useShortcuts({ e: edit, r: () => open("run"), "1": () => open("graph"), "2": () => open("plan"), "3": () => open("run") });
  useCommands([{ id: "edit-this", group: "This composition", label: `Edit ${plainText(name)}`, icon: "i-writes", keys: "E", run: edit }, { id: "run-this", group: "This composition", label: `Run ${plainText(name)}`, icon: "i-play", keys: "R", run: () => open("run") }]);
  return (
    <Screen
      title={plainText(name)}
      head={
        <nav className="crumb" aria-label="Where you are">
          <Link to="/compositions" search={{}}>Compositions</Link>
          <span aria-hidden="true">/</span>
          <h1 className="ell"><SafeText text={name} most={120} /></h1>
        </nav>
      }
      actions={
        <>
          <Link to="/edit" search={{ from: `composition:${name}` }} className="btn"><Icon name="i-writes" />Edit <kbd aria-hidden="true">E</kbd></Link>
          <Button kind="primary" icon="i-play" keys="R" aria-pressed={view === "run"} onClick={() => open("run")}>Run</Button>
        </>
      }
    >
      {query.isPending ? (
        <Skeleton label="Loading the composition" />
      ) : query.isError ? (
        <div className="pad"><Failure error={query.error} retry={() => void query.refetch()} /></div>
      ) : (
        <Panes key={name} detail={query.data} view={view} onView={open} />
      )}
    </Screen>
  );
}

const VIEWS = [
  { value: "graph", label: "Graph", icon: "i-graph" },
  { value: "plan", label: "Plan", icon: "i-list" },
  { value: "run", label: "Run", icon: "i-play" },
] as const;

function Panes({ detail, view, onView }: { detail: CompositionDetail; view: "graph" | "plan" | "run"; onView: (view: "graph" | "plan" | "run") => void }) {
  const { step = null } = useSearch({ from: "/compositions/$name" });
  const navigate = useNavigate({ from: "/compositions/$name" });
  const { name } = detail.summary;
  const spans = useMemo(() => placesOf(detail), [detail]);
  // A choice in the text does not scroll the text.
  const [jump, setJump] = useState<number | undefined>(() => spanOf(spans, step)?.line);
  const select = useCallback((next: string | null) => void navigate({ search: (old) => ({ ...old, step: next ?? undefined }), replace: true }), [navigate]);
  const fromPicture = useCallback(
    (next: string | null) => {
      setJump(spanOf(spans, next)?.line);
      select(next);
    },
    [spans, select],
  );
  const fromText = useCallback(
    (line: number) => {
      const next = stepAt(spans, line);
      if (!next) return;
      setJump(undefined);
      select(next);
    },
    [spans, select],
  );
  const looks = useLooks(detail.findings, spans);
  const { plan } = detail;
  return (
    <>
      <div className="comp">
        <div className="comp-left">
          <div className="bar">
            <Segmented label="View" value={view} options={VIEWS.map((one) => ({ ...one }))} onChange={onView} />
            <span className="muted ell"><SafeText text={detail.summary.description.split("\n")[0] ?? ""} most={300} /></span>
          </div>
          {!plan ? (
            <p className="pad">It has no plan: its findings are beside its text.</p>
          ) : view === "graph" ? (
            <div className="comp-graph">
              <Suspense fallback={<Skeleton rows={4} label="Loading the graph" />}>
                <PlanGraph key={plan.hash} name={`composition ${name}`} steps={plan.steps} looks={looks} strips={false} help="press 2 for the plan as a table" selected={step} onSelect={fromPicture} />
              </Suspense>
            </div>
          ) : view === "plan" ? (
            <div className="comp-scroll" tabIndex={0} role="region" aria-label="Plan">
              <About plan={plan} />
              <PlanTable steps={plan.steps} label={`Steps of ${name}`} selected={step} onSelect={fromPicture} />
            </div>
          ) : (
            <RunPane detail={detail} />
          )}
        </div>
        <TextPane detail={detail} spans={spans} step={step} line={jump} onLine={fromText} />
      </div>
    </>
  );
}

function useLooks(findings: CompositionDetail["findings"], spans: CompositionDetail["spans"]): Looks {
  const [looks] = useState(() => new Looks());
  const next = useMemo(() => looksOf(findings, spans), [findings, spans]);
  useEffect(() => looks.set(next), [looks, next]);
  return looks;
}
