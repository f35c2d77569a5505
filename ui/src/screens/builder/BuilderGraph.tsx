import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type DragEvent } from "react";
import type { PlanStepView } from "@/api/types";
import { serversQuery, toolsQuery } from "@/api/queries";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { Looks, type Look } from "@/graph/looks";
import { countSteps, type Layout } from "@/graph/layout";
import { PlanGraph } from "@/graph/PlanGraph";
import { plainText } from "@/lib/safe-text";
import { Empty } from "@/parts/Empty";
import { useBuilder, useChecked, useShown } from "./builder";
import { edgeLabels, looksOf, type EdgeLabel } from "./looks";
import { readDrag } from "./drag";
import { DRAG, type Analysis } from "./model";
import { NodeHandles } from "./NodeHandles";
import { Overlay } from "./Overlay";
import { pinnedSteps, usePins } from "./pins";
import { mayMove, placeAt, type NamedPlace } from "./places";
import { idOf, isOwn, pathsById, withGhosts } from "./steps";
import { focusPane, useUi } from "./ui";

/** Above this, the graph waits for a pause before it is laid out anew. */
const LARGE = 200;
const SETTLE_MS = 700;

/** The last value that stood still for a while. */
function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (ms === 0) return setSettled(value);
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return ms === 0 ? value : settled;
}

/** The steps of the text as a graph. Whatever is done to it becomes an edit of the text. */
export function BuilderGraph({ name, run, onMenu }: { name: string; run: ReadonlyMap<string, Look> | null; onMenu: (step: string, at: { x: number; y: number }) => void }) {
  const builder = useBuilder();
  const ui = useUi();
  const analysis = useChecked((checked) => checked.read);
  const selected = useShown((shown) => shown.selected);
  const current = analysis?.steps ?? EMPTY;
  const isLarge = useMemo(() => countSteps([...current]) > LARGE, [current]);
  const settled = useSettled(current, isLarge && current.length > 0 ? SETTLE_MS : 0);
  const drawn = isLarge && settled.length > 0 ? settled : current;
  const saved = useShown((shown) => shown.savedSteps);
  const { steps, ghosts } = useMemo(() => withGhosts(drawn, saved ?? drawn, builder.renamed), [drawn, saved, builder]);
  const paths = useMemo(() => pathsById(drawn), [drawn]);
  const looks = useGraphLooks(steps, ghosts, paths, run);
  const labels = useLabels(isLarge ? null : analysis, drawn);
  const select = useCallback((path: string | null) => builder.select(path === null ? null : idOf(path)), [builder]);
  const drag = useDrag(drawn);
  const target = ui.target;
  const what = ui.placing?.what ?? drag.what;
  const overlay = useCallback((layout: Layout) => <Overlay layout={layout} labels={labels} paths={paths} target={target ? { place: target, what: what ?? "" } : null} />, [labels, paths, target, what]);
  const onNode = useCallback((path: string) => (ghosts.has(path) || !isOwn(paths, path) ? null : <NodeHandles step={idOf(path)} />), [paths, ghosts]);
  const open = useCallback(
    (path: string) => {
      select(path);
      focusPane("step");
    },
    [select],
  );
  const menu = useCallback((path: string, at: { x: number; y: number }) => (select(path), onMenu(idOf(path), at)), [select, onMenu]);
  if (steps.length === 0) return <NoSteps drag={drag.events} unread={!!analysis && !analysis.valid && analysis.findings.length > 0} />;
  return (
    <PlanGraph
      name={`builder ${name}`}
      steps={steps}
      looks={looks}
      strips={run !== null}
      help="press 2 for the outline, N to add a step, and the menu key for what can be done with one"
      selected={selected === null ? null : (paths.get(selected) ?? selected)}
      onSelect={select}
      onNode={onNode}
      onOpen={open}
      onMenu={menu}
      overlay={overlay}
      drag={drag.onGraph}
      arrowsOff={ui.placing !== null}
    />
  );
}

const EMPTY: never[] = [];

/** Words on edges, as of the last text that was read. */
function useLabels(analysis: Analysis | null, steps: readonly PlanStepView[]): readonly EdgeLabel[] {
  const builder = useBuilder();
  const [labels, setLabels] = useState<readonly EdgeLabel[]>(EMPTY);
  useEffect(() => {
    if (!analysis) return setLabels(EMPTY);
    // The places are those of this text only while nothing more was typed; then a newer analysis is under way.
    if (builder.analyzer.snapshot().current) setLabels(edgeLabels(builder.document.snapshot().text, analysis.spans, steps));
  }, [builder, analysis, steps]);
  return labels;
}

function useGraphLooks(steps: Parameters<typeof looksOf>[0]["steps"], ghosts: ReadonlySet<string>, paths: ReadonlyMap<string, string>, run: ReadonlyMap<string, Look> | null): Looks {
  const analysis = useChecked((checked) => checked.read);
  const tools = useQuery(toolsQuery).data?.tools;
  const servers = useQuery({ ...serversQuery, enabled: !useDenied("admin") }).data?.servers;
  const pins = usePins();
  const next = useMemo(() => {
    const down = new Set((servers ?? []).filter((one) => one.state === "failed").map((one) => one.name));
    return looksOf({ findings: analysis?.findings ?? EMPTY, spans: analysis?.spans ?? EMPTY, paths, ghosts, tools: tools ?? EMPTY, down, steps, run, pinned: pinnedSteps(pins) });
  }, [analysis, paths, ghosts, tools, servers, steps, run, pins]);
  const [looks] = useState(() => {
    const first = new Looks();
    first.set(next);
    return first;
  });
  useLayoutEffect(() => looks.set(next), [looks, next]);
  return looks;
}

/** What is dragged over the graph: a tool or a kind to add, a step to move. While it is dragged only its type can be read. */
function useDrag(steps: Parameters<typeof placeAt>[1]) {
  const builder = useBuilder();
  const { setTarget } = useUi();
  const [what, setWhat] = useState<string | null>(null);
  const last = useRef<NamedPlace | null>(null);
  const show = (place: NamedPlace | null, words: string | null) => {
    if (last.current?.words !== place?.words) setTarget(place);
    last.current = place;
    setWhat(words);
  };
  const typeOf = (event: DragEvent) => [DRAG.step, DRAG.node].find((type) => event.dataTransfer.types.includes(type)) ?? null;
  const take = (event: DragEvent, place: NamedPlace | null) => {
    const type = typeOf(event);
    if (!type || !place) return;
    event.preventDefault();
    const dragged = readDrag(type, event.dataTransfer.getData(type), builder.takenIds());
    show(null, null);
    if (!dragged) return;
    if (type === DRAG.node && !mayMove(steps, dragged.what, place)) return announce("A step cannot be moved into itself");
    void builder.edit(dragged.edit(place), `${type === DRAG.node ? "Moved" : "Added"} ${dragged.what} ${place.words}`);
  };
  const over = (event: DragEvent, place: NamedPlace | null) => {
    const type = typeOf(event);
    if (!type) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = type === DRAG.node ? "move" : "copy";
    show(place, type === DRAG.node ? "Move here:" : "Drop here:");
  };
  return {
    what,
    onGraph: {
      over: (event: DragEvent, layout: Layout, { x, y }: { x: number; y: number }) => over(event, placeAt(layout, steps, x, y)),
      drop: (event: DragEvent, layout: Layout, { x, y }: { x: number; y: number }) => take(event, placeAt(layout, steps, x, y)),
      leave: () => show(null, null),
    },
    events: { onDragOver: (event: DragEvent) => over(event, FIRST), onDrop: (event: DragEvent) => take(event, FIRST) },
  };
}

const FIRST: NamedPlace = { place: { at: "last_in" }, words: "as the first step", at: null, side: "inside", depth: 0 };

function NoSteps({ drag, unread }: { drag: { onDragOver: (event: DragEvent) => void; onDrop: (event: DragEvent) => void }; unread: boolean }) {
  const message = useChecked((checked) => checked.analysis?.findings[0]?.message ?? "");
  return (
    <div className="b-empty" {...drag}>
      {unread ? (
        <Empty title="The text cannot be read">
          <p>{plainText(message)}</p>
          <p className="muted">The graph comes back as soon as it can.</p>
        </Empty>
      ) : (
        <Empty title="No steps yet">
          <p>Drag a tool here, or press <kbd>N</kbd>, type what you look for, and press <kbd>Enter</kbd>.</p>
        </Empty>
      )}
    </div>
  );
}
