import { duration } from "@/lib/format";
import { EffectMark, RollbackMark } from "@/parts/Marks";
import { SafeText, ToolName } from "@/parts/SafeText";
import { State } from "@/parts/State";
import { useRunContext } from "../context";
import { isRollingBack } from "../model";
import { happened, type Row } from "../rows";
import { TreeRows, Twist } from "./TreeRows";

/** The run as a table: every step after what it needs, and named with it. */
export function OutlineView() {
  const { model } = useRunContext();
  return (
    <TreeRows
      label="Steps in the order of their needs"
      className="outline"
      rowHeight={31}
      columns={6}
      head={
        <div role="row" className="trow head" aria-rowindex={1}>
          <span role="columnheader">Step</span>
          <span role="columnheader">State</span>
          <span role="columnheader" className="r">Time</span>
          <span role="columnheader">What happened</span>
          <span role="columnheader">Effect</span>
          <span role="columnheader">Needs</span>
        </div>
      }
      row={(row, toggle) => (
        <>
          <span role="gridcell" className="nm ell" style={{ paddingInlineStart: row.depth * 18 }}>
            <Twist row={row} toggle={toggle} />
            <SafeText text={row.name} most={80} />
          </span>
          <span role="gridcell" className="ell"><State state={row.state} /></span>
          <span role="gridcell" className="num r">{row.view?.started_at ? duration(row.view.duration_ms) : ""}</span>
          <span role="gridcell" className="ell"><What row={row} text={happened(row, model)} /></span>
          <span role="gridcell" className="row">
            {row.kind === "step" && (
              <>
                <EffectMark effect={row.plan.effect} short />
                <RollbackMark rollback={row.plan.rollback} short />
              </>
            )}
          </span>
          <span role="gridcell" className="ell"><SafeText text={row.needs} most={120} /></span>
        </>
      )}
    />
  );
}

function What({ row, text }: { row: Row; text: string }) {
  return (
    <>
      {row.kind === "step" && row.plan.tool && <ToolName tool={row.plan.tool} />} <SafeText text={text} most={200} />
      {isRollingBack(row.view) && " rolling back"}
      {row.branch && <span className="muted"> <SafeText text={row.branch} most={60} /></span>}
    </>
  );
}
