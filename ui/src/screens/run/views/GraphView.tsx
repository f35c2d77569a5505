import { useCallback, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Looks } from "@/graph/looks";
import { PlanGraph } from "@/graph/PlanGraph";
import { planPath } from "@/lib/path";
import { useRunContext } from "../context";
import { looksOf } from "../looks";
import { RollbackRail } from "../Rail";

/** The plan's graph with the states of the run over it. */
export default function GraphView() {
  const { model, rail, now, selected, select } = useRunContext();
  const shown = useMemo(() => looksOf(model, selected, rail, now), [model, selected, rail, now]);
  const [looks] = useState(() => {
    const first = new Looks();
    first.set(shown.looks);
    return first;
  });
  useLayoutEffect(() => looks.set(shown.looks), [looks, shown]);
  const paths = useRef(shown.runPath);
  paths.current = shown.runPath;
  const onSelect = useCallback((path: string | null) => select(path === null ? null : (paths.current.get(path) ?? path)), [select]);
  const onItem = useCallback((loop: string, item: number) => select(`${paths.current.get(loop) ?? loop}[${item}]`), [select]);
  return (
    <PlanGraph name={model.run.name} steps={model.plan.steps} looks={looks} selected={selected === null ? null : planPath(selected)} onSelect={onSelect} onItem={onItem}>
      {rail.active && rail.steps.length > 0 ? <RollbackRail /> : null}
    </PlanGraph>
  );
}
