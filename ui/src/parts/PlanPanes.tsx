import { lazy, Suspense, useState } from "react";
import type { PlanView } from "@/api/types";
import { CodeView } from "./CodeView";
import "./plan-panes.css";
import { PlanTable } from "./PlanTable";
import { Segmented } from "./Segmented";
import { Skeleton } from "./Skeleton";

const PlanGraph = lazy(() => import("@/graph/PlanGraph").then((module) => ({ default: module.PlanGraph })));
const VIEWS = [
  { value: "graph", label: "Graph", icon: "i-graph" },
  { value: "plan", label: "Plan", icon: "i-list" },
  { value: "text", label: "Text", icon: "i-words" },
] as const;
export type PlanPane = (typeof VIEWS)[number]["value"];

interface Props {
  plan: PlanView;
  /** The composition's text, where there is one. */
  source: { text: string; format: string } | null;
  pane: PlanPane;
  onPane: (pane: PlanPane) => void;
}

/** A plan that nothing has run yet: as a graph, as a table, and as text. */
export function PlanPanes({ plan, source, pane, onPane }: Props) {
  const [selected, setSelected] = useState<string | null>(null);
  const views = VIEWS.filter((view) => view.value !== "text" || source);
  const shown = pane === "text" && !source ? "graph" : pane;
  return (
    <div className="planpanes">
      <Segmented label="View of the plan" value={shown} options={views.map((view) => ({ ...view }))} onChange={onPane} />
      <div className="planpane">
        {shown === "graph" && (
          <Suspense fallback={<Skeleton rows={4} label="Loading the graph" />}>
            <PlanGraph key={plan.hash} name={`plan ${plan.name}`} steps={plan.steps} selected={selected} onSelect={setSelected} />
          </Suspense>
        )}
        {shown === "plan" && (
          <div className="scroll" tabIndex={0} role="region" aria-label="Plan">
            <PlanTable steps={plan.steps} label={`Steps of ${plan.name}`} />
          </div>
        )}
        {shown === "text" && source && <CodeView key={plan.hash} text={source.text} format={source.format} label="Text of the composition" />}
      </div>
    </div>
  );
}
