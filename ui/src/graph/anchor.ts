// Where the picture goes when a graph is laid out anew: what is in view stays where it is.
import type { Layout, Placed } from "./layout";

export interface Port {
  x: number;
  y: number;
  zoom: number;
}
interface Box {
  width: number;
  height: number;
}

export function inView(node: Placed, { x, y, zoom }: Port, box: Box): boolean {
  const left = node.x * zoom + x;
  const top = node.y * zoom + y;
  return left < box.width && top < box.height && left + node.w * zoom > 0 && top + node.h * zoom > 0;
}

/** The viewport in which the selected node, else the topmost one in view, is where it was; null when no node would be in view. */
export function anchored(before: Layout, after: Layout, selected: string | null, port: Port, box: Box): Port | null {
  const now = new Map(after.nodes.map((node) => [node.path, node]));
  const kept = before.nodes.filter((node) => node.kind !== "branch" && now.has(node.path) && inView(node, port, box));
  const anchor = kept.find((node) => node.path === selected) ?? kept.sort((a, b) => a.y - b.y || a.x - b.x)[0];
  const to = anchor && now.get(anchor.path);
  const next = anchor && to ? { x: port.x + (anchor.x - to.x) * port.zoom, y: port.y + (anchor.y - to.y) * port.zoom, zoom: port.zoom } : port;
  return after.nodes.some((node) => inView(node, next, box)) ? next : null;
}
