import { memo, useContext } from "react";
import { Icon } from "@/parts/Icon";
import { IconButton } from "@/parts/Button";
import { EffectMark, RollbackMark } from "@/parts/Marks";
import { SafeText, ToolName } from "@/parts/SafeText";
import { StateIcon } from "@/parts/State";
import { hasBodies, isLoop, type Placed } from "./layout";
import { GraphCtx, useLook, type Cell, type Look } from "./looks";

/** Icons and words of kinds that are no tool. */
const KIND_ICON: Record<string, string> = { loop: "i-loop", repeat: "i-loop", choose: "i-choose", parallel: "i-graph", approve: "i-person", wait: "i-time", set: "i-right", expand: "i-comp" };

export const PlacedNode = memo(function PlacedNode({ data }: { data: { placed: Placed } }) {
  const { placed } = data;
  if (placed.kind === "branch") return <Branch placed={placed} />;
  if (placed.kind === "container") return <Container placed={placed} />;
  return <StepNode placed={placed} />;
});

function Corner({ look }: { look: Look | undefined }) {
  if (!look?.corner) return null;
  return (
    <span className={`corner s-${look.corner.tone}`}>
      <Icon name={look.corner.icon ?? "i-rb"} />
      {look.corner.text}
    </span>
  );
}

function StepNode({ placed }: { placed: Placed }) {
  const { selected, onToggle, onNode } = useContext(GraphCtx);
  const look = useLook(placed.path);
  const { step } = placed;
  const short = step.tool?.slice(step.tool.indexOf(":") + 1) ?? "";
  const server = step.tool?.includes(":") ? step.tool.slice(0, 2) : "";
  return (
    <div className={`node s-${look?.state ?? "draft"}${selected === placed.path ? " sel" : ""}${look?.ghost ? " ghost" : ""}`}>
      <Corner look={look} />
      {onNode?.(placed.path)}
      <div className="l1">
        {look?.state ? <StateIcon state={look.state} /> : <Icon name={KIND_ICON[step.kind] ?? "i-tools"} />}
        <b className="ell"><SafeText text={step.id} most={80} /></b>
        {hasBodies(step) && <IconButton icon="i-plus" label={`Open ${step.id}`} kind="ghost" size="small" className="nodrag" onClick={(event) => { event.stopPropagation(); onToggle(placed.path); }} />}
        {look?.pin && <Icon name="i-pin" label="pinned" />}
        {look?.when && <span className="when num">{look.when}</span>}
      </div>
      <div className="l2 ell">
        {step.tool ? <ToolName tool={step.tool} /> : <Kind placed={placed} />}
      </div>
      <div className="l3">
        {step.tool && (
          <span className="srv">
            {server && <em>{server}</em>}
            <u><SafeText text={short} most={60} /></u>
          </span>
        )}
        <EffectMark effect={step.effect} />
        <RollbackMark rollback={step.rollback} />
        {(look?.attempts ?? 0) > 1 && (
          <span className="mark x">
            <em className="lg">{look?.attempts} attempts</em>
            <em className="sh">×{look?.attempts}</em>
          </span>
        )}
      </div>
    </div>
  );
}

function Kind({ placed: { step } }: { placed: Placed }) {
  const bodies = step.bodies ?? [];
  const inside = isLoop(step) ? bodies[0]?.label : bodies.length > 1 ? `${bodies.length} branches` : "";
  return <span className="muted">{step.kind}{inside && <> <SafeText text={inside} most={60} /></>}</span>;
}

function Container({ placed }: { placed: Placed }) {
  const { selected, onToggle, onNode } = useContext(GraphCtx);
  const look = useLook(placed.path);
  const { step } = placed;
  const label = step.bodies?.[0]?.label ?? "";
  return (
    <div className={`cont s-${look?.state ?? "draft"}${selected === placed.path ? " sel" : ""}`}>
      <Corner look={look} />
      {onNode?.(placed.path)}
      <div className="h">
        {look?.state && <StateIcon state={look.state} />}
        <b className="ell"><SafeText text={step.id} most={80} /></b>
        <span className="tag">
          <Icon name={step.tool ? "i-comp" : KIND_ICON[step.kind] ?? "i-graph"} small />
          {isLoop(step) ? <>{step.kind} over <SafeText text={label.replace(/^each /, "")} most={40} /></> : step.tool ? <SafeText text={step.tool} most={40} /> : step.kind}
        </span>
        {look?.about && <span className="muted hid">{look.about}</span>}
        {look?.pin && <Icon name="i-pin" label="pinned" />}
        <span className="grow" />
        {look?.when && <span className="muted num">{look.when}</span>}
        <IconButton icon="i-minus" label={`Close ${step.id}`} kind="ghost" size="small" className="nodrag" onClick={(event) => { event.stopPropagation(); onToggle(placed.path); }} />
      </div>
      {look?.cells && <Strip path={placed.path} look={look} width={placed.w} />}
    </div>
  );
}

function Strip({ path, look, width }: { path: string; look: Look; width: number }) {
  const { onItem, stripEnd } = useContext(GraphCtx);
  const cells = look.cells ?? [];
  return (
    <div className="strip nodrag">
      <div className="cells" style={{ maxWidth: width - 150 }}>
        {cells.map((cell) => (
          <button
            key={cell.first}
            type="button"
            tabIndex={-1}
            className={`${cell.state}${look.item !== undefined && look.item >= cell.first && look.item <= cell.last ? " cur" : ""}`}
            aria-label={cellLabel(cell)}
            title={cellLabel(cell)}
            onClick={(event) => {
              event.stopPropagation();
              onItem?.(path, cell.first);
            }}
          />
        ))}
      </div>
      <span className="num">{look.progress}</span>
      {look.failedText && <span className="failed-text">{look.failedText}</span>}
      <span className="grow" />
      {stripEnd?.(path)}
    </div>
  );
}

const cellLabel = (cell: Cell): string => (cell.first === cell.last ? `item [${cell.first}], ${cell.state}` : `items [${cell.first}–${cell.last}], ${cell.state}`);

function Branch({ placed }: { placed: Placed }) {
  const look = useLook(placed.path);
  return (
    <div className={`branch${look?.taken ? " taken" : ""}`}>
      <div className="bl">
        <span className="ell"><SafeText text={placed.label} most={120} /></span>
        {look?.taken && placed.step.kind === "choose" && <span className="tk"><Icon name="i-right" small />taken</span>}
      </div>
    </div>
  );
}
