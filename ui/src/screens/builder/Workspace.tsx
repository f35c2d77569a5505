import { useMemo, useState } from "react";
import { Segmented } from "@/parts/Segmented";
import { PlanTable } from "@/parts/PlanTable";
import { BuilderGraph } from "./BuilderGraph";
import { useBuilder, useChecked, useShown } from "./builder";
import { Dialogs } from "./Dialogs";
import { Footer } from "./Footer";
import { NoSave } from "./Header";
import { Inspector } from "./Inspector";
import { useKeys } from "./keys";
import { PlaceList } from "./PlaceList";
import { useLastRun, type ShownRun } from "./run";
import type { Save } from "./save";
import { StepMenu } from "./StepMenu";
import { idOf, pathsById } from "./steps";
import { StepPane } from "./StepPane";
import { TextPane } from "./TextPane";
import { ToolList } from "./ToolList";
import { useUi } from "./ui";

const VIEWS = [
  { value: "graph", label: "Graph", icon: "i-graph" },
  { value: "outline", label: "Outline", icon: "i-list" },
] as const;

/** Tools, graph, text, the selected step, and what is found. */
export function Workspace({ save, run }: { save: Save; run: ShownRun | null }) {
  const ui = useUi();
  const [view, setView] = useState<"graph" | "outline">("graph");
  const [menu, setMenu] = useState<{ x: number; y: number } | null>(null);
  const path = useShown((shown) => shown.file.path);
  useLastRun();
  useKeys({ save, onView: setView, onMenu: setMenu });
  return (
    <>
      {save.off && <NoSave why={save.off} />}
      <div className="b-grid">
        <ToolList />
        <section className="b-graph" aria-label={view === "graph" ? "Graph" : "Outline"} data-pane>
          <div className="b-views">
            <Segmented mini label="View" value={view} options={VIEWS.map((one) => ({ ...one }))} onChange={setView} />
          </div>
          {view === "graph" ? <BuilderGraph name={path ?? "new"} run={run?.looks ?? null} onMenu={(_, at) => setMenu(at)} /> : <Outline />}
          {ui.placing && <PlaceList key={ui.placing.what} placing={ui.placing} />}
        </section>
        <TextPane />
        <Inspector run={run}><StepPane /></Inspector>
      </div>
      <Footer />
      {menu && <StepMenu at={menu} onClose={() => setMenu(null)} />}
      <Dialogs save={save} run={run} />
    </>
  );
}

/** The graph as a table in the order of the text, for screen readers and for reading. */
function Outline() {
  const builder = useBuilder();
  const steps = useChecked((checked) => checked.analysis?.steps);
  const selected = useShown((shown) => shown.selected);
  const paths = useMemo(() => pathsById(steps ?? []), [steps]);
  return (
    <div className="b-outline" tabIndex={0} role="region" aria-label="Steps in order">
      <PlanTable steps={[...(steps ?? [])]} label="Steps" selected={selected ? (paths.get(selected) ?? null) : null} onSelect={(path) => builder.select(idOf(path))} />
    </div>
  );
}
