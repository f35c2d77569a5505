// Where every step of a plan stands. Dagre lays out each body by itself, innermost first, so the same plan
// gives the same picture whatever the states are.
import dagre from "@dagrejs/dagre";
import type { PlanStepView } from "@/api/types";

export const NODE_W = 240;
export const NODE_H = 66;
const HEAD = 34;
const STRIP = 28;
const PAD = 14;
const LABEL = 24;
const GAP = 12;
const CONTAINER_W = 300;
/** Room for the strip and its words. */
const LOOP_W = 360;
const RANK_GAP = 40;
const NODE_GAP = 26;

export interface Placed {
  /** The step's path in the plan; a branch adds `:` and its number. */
  path: string;
  kind: "step" | "container" | "branch";
  x: number;
  y: number;
  w: number;
  h: number;
  depth: number;
  step: PlanStepView;
  label: string;
  index: number;
}
export type Point = [number, number];
/** A step refers to another one, only waits for it (`depends_on`), or a program goes on with it. */
export type EdgeKind = "needs" | "depends" | "program";
export interface PlacedEdge {
  id: string;
  from: string;
  to: string;
  kind: EdgeKind;
  points: Point[];
}
export interface Layout {
  w: number;
  h: number;
  nodes: Placed[];
  edges: PlacedEdge[];
}
export interface LayoutOptions {
  collapsed: ReadonlySet<string>;
  /** Leave room for the iteration strip of loops. */
  strips: boolean;
}

export const hasBodies = (step: PlanStepView): boolean => (step.bodies ?? []).some((body) => body.steps.length > 0);
export const isLoop = (step: PlanStepView): boolean => step.kind === "loop" || step.kind === "repeat";

/** Whether a step only waits for another one, and refers to nothing of it. */
export const waitsOnly = (step: PlanStepView, need: string): boolean => (step.depends_on ?? []).includes(need);

/** How many nodes a plan has when everything is open. */
export function countSteps(steps: PlanStepView[]): number {
  return steps.reduce((sum, step) => sum + 1 + (step.bodies ?? []).reduce((inner, body) => inner + countSteps(body.steps), 0), 0);
}

export function containers(steps: PlanStepView[], prefix = ""): string[] {
  return steps.flatMap((step) =>
    hasBodies(step)
      ? [prefix + step.id, ...(step.bodies ?? []).flatMap((body) => containers(body.steps, `${prefix}${step.id}/`))]
      : [],
  );
}

export function layout(steps: PlanStepView[], options: LayoutOptions): Layout {
  return body(steps, "", 0, options);
}

function body(steps: PlanStepView[], prefix: string, depth: number, options: LayoutOptions): Layout {
  const boxes = steps.map((step) => box(step, prefix + step.id, depth, options));
  const wanted = edgesOf(steps);
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "TB", ranksep: RANK_GAP, nodesep: NODE_GAP, edgesep: 10, ranker: steps.length > 200 ? "longest-path" : "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  steps.forEach((step, i) => graph.setNode(step.id, { width: boxes[i]?.w ?? NODE_W, height: boxes[i]?.h ?? NODE_H }));
  for (const edge of wanted) graph.setEdge(edge.from, edge.to, {}, edge.kind);
  dagre.layout(graph);
  const out: Layout = { w: NODE_W, h: NODE_H, nodes: [], edges: [] };
  const placed = new Map<string, { x: number; y: number; w: number; h: number }>();
  steps.forEach((step, i) => {
    const at = graph.node(step.id) as { x: number; y: number; width: number; height: number };
    const inner = boxes[i];
    if (!inner) return;
    const x = Math.round(at.x - at.width / 2);
    const y = Math.round(at.y - at.height / 2);
    placed.set(step.id, { x, y, w: inner.w, h: inner.h });
    out.w = Math.max(out.w, x + inner.w);
    out.h = Math.max(out.h, y + inner.h);
    out.nodes.push(...inner.nodes.map((node) => ({ ...node, x: node.x + x, y: node.y + y })));
    out.edges.push(...inner.edges.map((edge) => ({ ...edge, points: edge.points.map(([px, py]): Point => [px + x, py + y]) })));
  });
  for (const edge of wanted) {
    const from = placed.get(edge.from);
    const to = placed.get(edge.to);
    if (!from || !to) continue;
    const drawn = graph.edge({ v: edge.from, w: edge.to, name: edge.kind }) as { points?: { x: number; y: number }[] } | undefined;
    const points = route(from, to, drawn?.points ?? []);
    out.edges.push({ id: `${prefix}${edge.from}>${prefix}${edge.to}:${edge.kind}`, from: prefix + edge.from, to: prefix + edge.to, kind: edge.kind, points });
  }
  return out;
}

interface Wanted {
  from: string;
  to: string;
  kind: EdgeKind;
}

function edgesOf(steps: PlanStepView[]): Wanted[] {
  const ids = new Set(steps.map((step) => step.id));
  const edges: Wanted[] = [];
  for (const step of steps) {
    for (const from of new Set(step.needs)) {
      if (!ids.has(from) || from === step.id) continue;
      edges.push({ from, to: step.id, kind: waitsOnly(step, from) ? "depends" : "needs" });
    }
    // A program goes from step to step; several outcomes may lead to the same one.
    const targets = new Set((step.ways ?? []).map((way) => way.to).filter((to): to is string => !!to && ids.has(to) && to !== step.id));
    for (const to of targets) edges.push({ from: step.id, to, kind: "program" });
  }
  return edges;
}

/** A step as a box with everything inside it, at 0, 0. */
function box(step: PlanStepView, path: string, depth: number, options: LayoutOptions): Layout {
  const bodies = (step.bodies ?? []).filter((one) => one.steps.length > 0);
  const self = (kind: Placed["kind"], w: number, h: number): Placed => ({ path, kind, x: 0, y: 0, w, h, depth, step, label: step.id, index: 0 });
  if (bodies.length === 0 || options.collapsed.has(path)) return { w: NODE_W, h: NODE_H, nodes: [self("step", NODE_W, NODE_H)], edges: [] };
  const top = HEAD + (isLoop(step) && options.strips ? STRIP : 0);
  const branches = step.kind === "choose" || step.kind === "parallel" || bodies.length > 1;
  const inners = bodies.map((one) => body(one.steps, `${path}/`, depth + (branches ? 2 : 1), options));
  const out: Layout = { w: 0, h: 0, nodes: [], edges: [] };
  let x = PAD;
  let tallest = 0;
  inners.forEach((inner, i) => {
    const w = branches ? inner.w + 2 * GAP : inner.w;
    const dx = branches ? x + GAP : x;
    const dy = top + (branches ? GAP / 2 + LABEL : PAD);
    const h = branches ? inner.h + LABEL + GAP : inner.h;
    if (branches)
      out.nodes.push({ path: `${path}:${i}`, kind: "branch", x, y: top + GAP / 2, w, h: 0, depth: depth + 1, step, label: bodies[i]?.label ?? "", index: i });
    out.nodes.push(...inner.nodes.map((node) => ({ ...node, x: node.x + dx, y: node.y + dy })));
    out.edges.push(...inner.edges.map((edge) => ({ ...edge, points: edge.points.map(([px, py]): Point => [px + dx, py + dy]) })));
    tallest = Math.max(tallest, h);
    x += w + GAP;
  });
  for (const node of out.nodes) if (node.kind === "branch" && node.depth === depth + 1) node.h = tallest;
  const natural = x - GAP + PAD;
  const w = Math.max(natural, isLoop(step) && options.strips ? LOOP_W : CONTAINER_W);
  // A narrow body stands in the middle.
  const shift = Math.floor((w - natural) / 2);
  for (const node of out.nodes) node.x += shift;
  for (const edge of out.edges) for (const point of edge.points) point[0] += shift;
  const h = top + (branches ? GAP / 2 : PAD) + tallest + PAD;
  return { w, h, nodes: [self("container", w, h), ...out.nodes], edges: out.edges };
}

interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

/**
 * Down from one box to the other with right angles. Dagre's points alternate between the gap after a row and
 * the place beside the boxes of a row that the edge passes: the gaps give the heights of the level parts.
 */
function route(from: Box, to: Box, points: { x: number; y: number }[]): Point[] {
  const start: Point = [Math.round(from.x + from.w / 2), from.y + from.h];
  const end: Point = [Math.round(to.x + to.w / 2), to.y];
  if (end[1] <= start[1]) return backwards(from, to);
  const between = points.slice(1, -1);
  const out: Point[] = [start];
  let x = start[0];
  for (let i = 0; i < between.length; i += 2) {
    const gap = between[i];
    const beside = between[i + 1];
    const next = beside && i + 1 < between.length - 1 ? Math.round(beside.x) : end[0];
    if (!gap || next === x) continue;
    const y = Math.round(Math.min(Math.max(gap.y, start[1] + 8), end[1] - 8));
    out.push([x, y], [next, y]);
    x = next;
  }
  if (x !== end[0]) out.push([x, end[1] - 12], [end[0], end[1] - 12]);
  out.push(end);
  return out;
}

/** A program may go back: out at the right side, up, and in from above. */
function backwards(from: Box, to: Box): Point[] {
  const right = Math.max(from.x + from.w, to.x + to.w) + 16;
  const middle = Math.round(from.y + from.h / 2);
  const top = Math.round(to.y + to.h / 2);
  return [[from.x + from.w, middle], [right, middle], [right, top], [to.x + to.w, top]];
}

/** An SVG path through right angles with round corners. */
export function roundPath(points: Point[], radius = 8): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let text = `M${first[0]} ${first[1]}`;
  for (let i = 0; i < rest.length; i++) {
    const at = rest[i];
    const next = rest[i + 1];
    const before = i === 0 ? first : rest[i - 1];
    if (!at || !before) continue;
    if (!next) {
      text += `L${at[0]} ${at[1]}`;
      continue;
    }
    const r = Math.min(radius, distance(before, at) / 2, distance(at, next) / 2);
    const a = toward(at, before, r);
    const b = toward(at, next, r);
    text += `L${a[0]} ${a[1]}Q${at[0]} ${at[1]} ${b[0]} ${b[1]}`;
  }
  return text;
}

const distance = (a: Point, b: Point): number => Math.abs(a[0] - b[0]) + Math.abs(a[1] - b[1]);
function toward(from: Point, to: Point, by: number): Point {
  const whole = distance(from, to) || 1;
  return [from[0] + ((to[0] - from[0]) * by) / whole, from[1] + ((to[1] - from[1]) * by) / whole];
}
