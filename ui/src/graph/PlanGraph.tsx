import { Background, MiniMap, Panel, ReactFlow, ReactFlowProvider, ViewportPortal, useReactFlow, useStore, type FitViewOptions, type Node, type NodeMouseHandler, type Viewport } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type DragEvent, type ReactNode } from "react";
import type { PlanStepView } from "@/api/types";
import { announce } from "@/app/announce";
import { useShortcuts } from "@/app/shortcuts";
import { plainText } from "@/lib/safe-text";
import { stateWord } from "@/parts/State";
import { IconButton } from "@/parts/Button";
import { anchored } from "./anchor";
import { Edges } from "./Edges";
import "./graph.css";
import { containers, countSteps, layout, type Layout, type Placed } from "./layout";
import { GraphCtx, Looks, type GraphContext } from "./looks";
import { neighbour, type Direction } from "./neighbours";
import { PlacedNode } from "./nodes";

const COLLAPSE_ABOVE = 300;
const nodeTypes = { placed: PlacedNode };
type FlowNode = Node<{ placed: Placed }>;

export interface PlanGraphProps {
  /** The composition's name: the viewport and what is collapsed are remembered under it. */
  name: string;
  steps: PlanStepView[];
  looks?: Looks;
  /** Whether loops have a strip of items: of a run they do. */
  strips?: boolean;
  /** The selected step's path in the plan. */
  selected: string | null;
  onSelect: (path: string | null) => void;
  /** The way to the same as a list. */
  help?: string;
  onItem?: GraphContext["onItem"];
  stripEnd?: GraphContext["stripEnd"];
  onNode?: GraphContext["onNode"];
  /** What is drawn with the nodes, in their coordinates. */
  overlay?: (layout: Layout) => ReactNode;
  /** A drag over the canvas, with its place in the drawing; `drop` takes what is dropped there. */
  drag?: { over: (event: DragEvent, layout: Layout, at: { x: number; y: number }) => void; drop: (event: DragEvent, layout: Layout, at: { x: number; y: number }) => void; leave: () => void };
  /** The context menu of a node was asked for, at a point of the window. */
  onMenu?: (path: string, at: { x: number; y: number }) => void;
  /** Enter on a node; without it, the node is selected. */
  onOpen?: (path: string) => void;
  /** Whether arrow keys have another meaning at the moment. */
  arrowsOff?: boolean;
  /** At the bottom, over the canvas: the rollback rail. */
  children?: ReactNode;
}

/** A plan as a picture, for compositions and, with `looks`, for runs. */
export function PlanGraph(props: PlanGraphProps) {
  return (
    <ReactFlowProvider>
      <Canvas {...props} />
    </ReactFlowProvider>
  );
}

function remembered(name: string): { viewport?: Viewport; collapsed?: string[] } {
  try {
    return JSON.parse(localStorage.getItem(`segue-graph ${name}`) ?? "{}") as { viewport?: Viewport };
  } catch {
    return {};
  }
}

function remember(name: string, change: { viewport?: Viewport; collapsed?: string[] }): void {
  try {
    localStorage.setItem(`segue-graph ${name}`, JSON.stringify({ ...remembered(name), ...change }));
  } catch {
    // Without storage the next visit starts with everything in view.
  }
}

function useCollapsed(name: string, steps: PlanStepView[]) {
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(() => {
    const kept = remembered(name).collapsed;
    if (kept) return new Set(kept);
    return new Set(countSteps(steps) > COLLAPSE_ABOVE ? containers(steps) : []);
  });
  const toggle = useCallback(
    (path: string) =>
      setCollapsed((now) => {
        const next = new Set(now);
        if (!next.delete(path)) next.add(path);
        remember(name, { collapsed: [...next] });
        return next;
      }),
    [name],
  );
  return [collapsed, toggle] as const;
}

function toNodes(out: Layout): FlowNode[] {
  return out.nodes.map((placed) => ({
    id: placed.path,
    type: "placed",
    position: { x: placed.x, y: placed.y },
    width: placed.w,
    height: placed.h,
    measured: { width: placed.w, height: placed.h },
    handles: [],
    data: { placed },
    draggable: false,
    connectable: false,
    selectable: placed.kind !== "branch",
    focusable: placed.kind !== "branch",
    ariaLabel: placed.kind === "branch" ? undefined : plainText(placed.step.id),
    zIndex: placed.kind === "step" ? 2 : -100 + placed.depth,
  }));
}

const emptyLooks = new Looks();

function Canvas({ name, steps, looks = emptyLooks, strips = looks !== emptyLooks, selected, onSelect, help = "press 3 for the outline", onItem, stripEnd, onNode, overlay, drag, onMenu, onOpen, arrowsOff, children }: PlanGraphProps) {
  const [collapsed, onToggle] = useCollapsed(name, steps);
  const out = useMemo(() => layout(steps, { collapsed, strips }), [steps, collapsed, strips]);
  const nodes = useMemo(() => toNodes(out), [out]);
  const flow = useReactFlow();
  const first = useRef(remembered(name).viewport);
  // A step inside a collapsed container is shown by the container.
  const shown = useMemo(() => visible(out, selected), [out, selected]);
  const select = useCallback((path: string) => onSelect(path), [onSelect]);
  const context = useMemo<GraphContext>(
    () => ({ looks, selected: shown, collapsed, onSelect: select, onToggle, onItem, stripEnd, onNode }),
    [looks, shown, collapsed, select, onToggle, onItem, stripEnd, onNode],
  );
  const fit = children ? FIT_OVER_RAIL : overlay ? FIT_BELOW_BAR : FIT;
  useKeys(out, shown, looks, onSelect, fit, arrowsOff ?? false);
  useShortcuts({ o: () => (shown && (collapsed.has(shown) || containers(steps).includes(shown)) ? onToggle(shown) : false) });
  const at = (event: DragEvent) => flow.screenToFlowPosition({ x: event.clientX, y: event.clientY });
  const covered = children ? 120 : 10;
  useAnchor(out, shown, fit);
  useEffect(() => bringIntoView(flow, out, shown, covered), [flow, out, shown, covered]);
  const onNodeClick = useCallback<NodeMouseHandler<FlowNode>>((_, node) => node.data.placed.kind !== "branch" && onSelect(node.id), [onSelect]);
  return (
    <GraphCtx value={context}>
      <Lod label={`Graph of ${steps.length} steps. Arrow keys follow edges; ${help}.`} onEnter={onOpen ?? onSelect}>
        <ReactFlow
          onDragOver={drag && ((event) => drag.over(event, out, at(event)))}
          onDrop={drag && ((event) => drag.drop(event, out, at(event)))}
          onDragLeave={drag?.leave}
          onNodeContextMenu={onMenu && ((event, node) => {
            event.preventDefault();
            onMenu(node.id, { x: event.clientX, y: event.clientY });
          })}
          nodes={nodes}
          nodeTypes={nodeTypes}
          edges={NO_EDGES}
          onlyRenderVisibleElements
          nodesDraggable={false}
          nodesConnectable={false}
          elementsSelectable={false}
          disableKeyboardA11y
          deleteKeyCode={null}
          selectionKeyCode={null}
          multiSelectionKeyCode={null}
          zoomActivationKeyCode="Control"
          panOnScroll
          minZoom={0.05}
          maxZoom={1.5}
          defaultViewport={first.current}
          fitView={!first.current}
          fitViewOptions={fit}
          onNodeClick={onNodeClick}
          onPaneClick={() => onSelect(null)}
          onMoveEnd={(_, viewport) => remember(name, { viewport })}
          proOptions={PRO}
        >
          <Background gap={20} size={1.2} color="var(--dot)" />
          <ViewportPortal>
            <Edges edges={out.edges} w={out.w + 40} h={out.h + 40} />
            {overlay?.(out)}
          </ViewportPortal>
          <Panel position="top-left"><Zoom fit={fit} /></Panel>
          <MiniMap className={children ? "raised" : undefined} pannable zoomable nodeColor={(node) => colour(looks, (node as FlowNode).data.placed)} nodeStrokeWidth={0} ariaLabel="Map of the graph" />
        </ReactFlow>
        {children}
      </Lod>
    </GraphCtx>
  );
}

const NO_EDGES: never[] = [];
const FIT = { padding: 0.08, maxZoom: 1, minZoom: 0.15 };
/** The rail covers the bottom of the canvas. */
const FIT_OVER_RAIL = { ...FIT, padding: { top: "40px", bottom: "128px", x: "32px" } } as const;
/** The switch of views is over the top of the canvas. */
const FIT_BELOW_BAR = { ...FIT, padding: { top: "60px", bottom: "28px", x: "32px" } } as const;
const PRO = { hideAttribution: true };

function colour(looks: Looks, placed: Placed): string {
  if (placed.kind !== "step") return placed.kind === "container" ? "var(--sunken)" : "transparent";
  const state = looks.get(placed.path)?.state ?? "pending";
  return `var(--${state.replaceAll("_", "-")}-bd)`;
}

function visible(out: Layout, path: string | null): string | null {
  for (let at = path; at; at = at.includes("/") ? at.slice(0, at.lastIndexOf("/")) : "") {
    if (out.nodes.some((node) => node.path === at)) return at;
  }
  return null;
}

const MARGIN = 24;

/** A new layout leaves what is in view where it is; if nothing would be in view, it shows everything. */
function useAnchor(out: Layout, selected: string | null, fit: FitViewOptions): void {
  const flow = useReactFlow();
  const last = useRef(out);
  useLayoutEffect(() => {
    const before = last.current;
    last.current = out;
    const box = document.querySelector(".plan-graph")?.getBoundingClientRect();
    if (before === out || !box || box.width === 0) return;
    const next = anchored(before, out, selected, flow.getViewport(), box);
    if (next) void flow.setViewport(next);
    else requestAnimationFrame(() => void flow.fitView(fit));
  }, [flow, out, selected, fit]);
}

/** Pans to a selected node that is out of view, no further than it must; a visible one does not move the picture. */
function bringIntoView(flow: ReturnType<typeof useReactFlow>, out: Layout, path: string | null, covered: number): void {
  const node = out.nodes.find((one) => one.path === path);
  const box = document.querySelector(".plan-graph")?.getBoundingClientRect();
  if (!node || !box || box.width === 0) return;
  const { x, y, zoom } = flow.getViewport();
  const left = node.x * zoom + x;
  const top = node.y * zoom + y;
  const right = left + Math.min(node.w, 300) * zoom;
  const bottom = top + Math.min(node.h, 120) * zoom;
  if (left >= 0 && top >= 0 && right <= box.width && bottom <= box.height - covered) return;
  if (zoom < 0.4) return void flow.setCenter(node.x + node.w / 2, node.y + Math.min(node.h, 200) / 2, { zoom: 0.4, duration: slow() });
  const dx = left < 0 ? MARGIN - left : right > box.width ? Math.max(MARGIN - left, box.width - MARGIN - right) : 0;
  const dy = top < 0 ? MARGIN - top : bottom > box.height - covered ? Math.max(MARGIN - top, box.height - covered - MARGIN - bottom) : 0;
  void flow.setViewport({ x: x + dx, y: y + dy, zoom }, { duration: slow() });
}

/** 240 ms, or 0 when motion is reduced. */
function slow(): number {
  return Number.parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--d-slow")) || 0;
}

function useKeys(out: Layout, selected: string | null, looks: Looks, onSelect: (path: string | null) => void, fit: FitViewOptions, arrowsOff: boolean): void {
  const flow = useReactFlow();
  const go = (direction: Direction) => () => {
    if (arrowsOff) return false;
    const next = neighbour(out, selected, direction);
    if (!next) return true;
    onSelect(next);
    const look = looks.get(next);
    announce(`${plainText(next)}${look?.state ? `, ${stateWord(look.state)}` : ""}`);
    return true;
  };
  useShortcuts({
    ArrowUp: go("ArrowUp"),
    ArrowDown: go("ArrowDown"),
    ArrowLeft: go("ArrowLeft"),
    ArrowRight: go("ArrowRight"),
    "+": () => void flow.zoomIn({ duration: slow() }),
    "=": () => void flow.zoomIn({ duration: slow() }),
    "-": () => void flow.zoomOut({ duration: slow() }),
    "0": () => void flow.fitView({ ...fit, duration: slow() }),
  });
}

/** The level of detail is a class: words grow as zoom falls, and nothing is drawn again. */
function Lod({ children, label, onEnter }: { children: ReactNode; label: string; onEnter: (path: string) => void }) {
  const level = useStore((state) => {
    const zoom = state.transform[2];
    return zoom < 0.4 ? "far tiny" : zoom < 0.7 ? "far" : zoom < 0.92 ? "mid" : "full";
  });
  return (
    <div
      className={`plan-graph ${level}`}
      role="group"
      aria-label={label}
      onKeyDown={(event) => {
        const path = (event.target as HTMLElement).dataset.id;
        if (path && (event.key === "Enter" || event.key === " ")) {
          event.preventDefault();
          onEnter(path);
        }
      }}
    >
      {children}
    </div>
  );
}

const Zoom = memo(function Zoom({ fit }: { fit: FitViewOptions }) {
  const flow = useReactFlow();
  const zoom = useStore((state) => Math.round(state.transform[2] * 100));
  return (
    <div className="box zoom">
      <IconButton icon="i-minus" label="Zoom out" kind="ghost" size="small" onClick={() => void flow.zoomOut({ duration: slow() })} />
      <span className="num">{zoom} %</span>
      <IconButton icon="i-plus" label="Zoom in" kind="ghost" size="small" onClick={() => void flow.zoomIn({ duration: slow() })} />
      <IconButton icon="i-fit" label="Show everything" kind="ghost" size="small" onClick={() => void flow.fitView({ ...fit, duration: slow() })} />
    </div>
  );
});
