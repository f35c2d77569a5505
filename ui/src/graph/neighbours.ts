// Which node an arrow key leads to.
import type { Layout, Placed } from "./layout";

export type Direction = "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight";

const middle = (node: Placed): [number, number] => [node.x + node.w / 2, node.y + node.h / 2];

/** Down and up follow edges (and go into and out of containers); left and right go to the next node of the row. */
export function neighbour(layout: Layout, path: string | null, direction: Direction): string | null {
  const nodes = layout.nodes.filter((node) => node.kind !== "branch");
  const here = nodes.find((node) => node.path === path);
  if (!here) return nodes[0]?.path ?? null;
  if (direction === "ArrowDown" || direction === "ArrowUp") {
    const down = direction === "ArrowDown";
    const linked = layout.edges.filter((edge) => (down ? edge.from : edge.to) === here.path).map((edge) => (down ? edge.to : edge.from));
    const inner = nodes.filter((node) => node.path.startsWith(`${here.path}/`));
    if (down && inner.length > 0) return topmost(inner)?.path ?? null;
    const found = nearest(here, nodes.filter((node) => linked.includes(node.path)));
    if (found) return found.path;
    const parent = nodes.find((node) => node.path === here.path.slice(0, here.path.lastIndexOf("/")));
    if (!parent) return null;
    return down ? neighbourOutside(layout, parent) : parent.path;
  }
  const right = direction === "ArrowRight";
  const beside = nodes.filter((node) => {
    if (parentOf(node.path) !== parentOf(here.path)) return false;
    const overlaps = node.y < here.y + here.h && here.y < node.y + node.h;
    return overlaps && (right ? node.x > here.x : node.x < here.x);
  });
  return nearest(here, beside)?.path ?? null;
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")));

function neighbourOutside(layout: Layout, container: Placed): string | null {
  const next = layout.edges.find((edge) => edge.from === container.path);
  return next?.to ?? null;
}

function topmost(nodes: Placed[]): Placed | undefined {
  return [...nodes].sort((a, b) => a.y - b.y || a.x - b.x)[0];
}

function nearest(here: Placed, nodes: Placed[]): Placed | undefined {
  const [x, y] = middle(here);
  const far = (node: Placed) => Math.abs(middle(node)[0] - x) + Math.abs(middle(node)[1] - y);
  return [...nodes].sort((a, b) => far(a) - far(b))[0];
}
