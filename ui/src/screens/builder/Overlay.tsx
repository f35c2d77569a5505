// What the builder draws over the graph: fields on edges, and where a step will be added.
import type { Layout, Placed } from "@/graph/layout";
import { cut, plainText } from "@/lib/safe-text";
import type { EdgeLabel } from "./looks";
import type { NamedPlace } from "./places";

interface Props {
  layout: Layout;
  labels: readonly EdgeLabel[];
  paths: ReadonlyMap<string, string>;
  target: { place: NamedPlace; what: string } | null;
}

export function Overlay({ layout, labels, paths, target }: Props) {
  return (
    <div className="b-overlay" aria-hidden="true">
      {labels.map((label) => (
        <Label key={`${label.from}>${label.to}`} layout={layout} label={label} paths={paths} />
      ))}
      {target && <Target layout={layout} target={target} />}
    </div>
  );
}

function Label({ layout, label, paths }: { layout: Layout; label: EdgeLabel; paths: ReadonlyMap<string, string> }) {
  const edge = layout.edges.find((one) => one.from === paths.get(label.from) && one.to === paths.get(label.to));
  const end = edge?.points.at(-1);
  const before = edge?.points.at(-2);
  if (!end || !before) return null;
  // On the last stretch, which leads into the step.
  const y = (Math.max(before[1], end[1] - 40) + end[1]) / 2 - 2;
  return <span className="b-edge" style={{ transform: `translate(${end[0]}px, ${y}px) translate(-50%, -50%)` }}>{cut(plainText(label.words), 34)}</span>;
}

function nodeOf(layout: Layout, path: string | null): Placed | undefined {
  for (let at = path; at; at = at.includes("/") ? at.slice(0, at.lastIndexOf("/")) : at.includes(":") ? at.slice(0, at.lastIndexOf(":")) : "") {
    const node = layout.nodes.find((one) => one.path === at);
    if (node) return node;
  }
  return undefined;
}

const H = 30;

function Target({ layout, target: { place, what } }: { layout: Layout; target: NonNullable<Props["target"]> }) {
  const node = nodeOf(layout, place.at);
  const w = Math.min(node?.w ?? 240, 240);
  const x = node ? node.x + (node.w - w) / 2 : 0;
  const y = !node ? 0 : place.side === "above" ? node.y - H - 5 : place.side === "below" ? node.y + node.h + 5 : node.y + node.h - H - 8;
  return (
    <div className="b-target" style={{ transform: `translate(${x}px, ${y}px)`, width: w, height: H }}>
      <span className="ell">{cut(plainText(what), 40)} {plainText(place.words)}</span>
    </div>
  );
}
