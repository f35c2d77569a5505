import { memo, useContext, useSyncExternalStore } from "react";
import { roundPath, type PlacedEdge } from "./layout";
import { GraphCtx, type Looks } from "./looks";

/** All edges in one drawing below the nodes. */
export function Edges({ edges, w, h }: { edges: PlacedEdge[]; w: number; h: number }) {
  const { looks } = useContext(GraphCtx);
  useSyncExternalStore(looks.subscribe, looks.version);
  return (
    <svg className="edges" width={w} height={h} aria-hidden="true">
      <defs>
        {TONES.map((tone) => (
          <marker key={tone} id={`ah${tone}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse" markerUnits="userSpaceOnUse">
            <path d="M0 0.5 8 4 0 7.5z" className={`ah ${tone}`} />
          </marker>
        ))}
      </defs>
      {edges.map((edge) => (
        <Edge key={edge.id} edge={edge} tone={toneOf(edge, looks)} />
      ))}
    </svg>
  );
}

const TONES = ["", "bad", "back", "flow", "off"] as const;
type Tone = (typeof TONES)[number];

/** Moving dashes when live, red into a failed step, violet beside a rolled-back one, dotted for skipped. */
export function toneOf(edge: PlacedEdge, looks: Looks): Tone {
  const from = looks.get(edge.from);
  const to = looks.get(edge.to);
  if (!to) return "";
  if (to.state === "running" && !to.back) return "flow";
  if (to.state === "failed") return "bad";
  if (to.state === "skipped" || from?.state === "skipped") return "off";
  if (to.back || (from?.back && to.state !== "success")) return "back";
  return "";
}

const Edge = memo(function Edge({ edge, tone }: { edge: PlacedEdge; tone: Tone }) {
  return <path className={`e ${edge.kind} ${tone}`} d={roundPath(edge.points)} markerEnd={`url(#ah${tone})`} />;
});
