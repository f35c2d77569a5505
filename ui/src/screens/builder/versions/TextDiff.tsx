import { useMemo, useState, type ReactNode } from "react";
import { plural } from "@/lib/format";
import { SafeText } from "@/parts/SafeText";
import { VirtualList } from "@/parts/VirtualList";
import { diffRows, type Compared, type DiffRow } from "./diff-rows";
import "./versions.css";

const ROW = 24;
const LINE_MOST = 400;

interface Props {
  compared: Compared;
  label: string;
  /** What stands at the head of each hunk, such as a choice. */
  hunk?: (index: number) => ReactNode;
  /** Where both texts are put together: the side that a hunk's lines are taken from. */
  side?: (index: number) => "before" | "after";
}

/** Two texts line by line. Only the rows in view are drawn. */
export function TextDiff({ compared, label, hunk, side }: Props) {
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const rows = useMemo(() => diffRows(compared, opened), [compared, opened]);
  if (compared.hunks.length === 0) return <p className="muted pad">The texts are the same.</p>;
  return (
    <VirtualList
      className="textdiff"
      role="group"
      aria-label={label}
      count={rows.length}
      rowHeight={ROW}
      keyOf={(i) => rows[i]?.key ?? String(i)}
      row={(i) => {
        const row = rows[i];
        return row && <Row row={row} head={hunk} side={side} onGap={(gap) => setOpened((now) => new Set(now).add(gap))} />;
      }}
    />
  );
}

const SIGN = { same: " ", removed: "−", added: "+", kept: "+", dropped: "−" };

function Row({ row, head, side, onGap }: { row: DiffRow; head: Props["hunk"]; side: Props["side"]; onGap: (gap: number) => void }) {
  if (row.kind === "gap")
    return (
      <div className="dline gap">
        <button type="button" className="link" onClick={() => onGap(row.gap)}>Show {plural(row.count, "line")} that did not change</button>
      </div>
    );
  if (row.kind === "hunk")
    return (
      <div className="dline hunkhead">
        <span className="muted">Change {row.hunk + 1}: {[row.removed > 0 && `${plural(row.removed, "line")} removed`, row.added > 0 && `${plural(row.added, "line")} added`].filter(Boolean).join(", ")}</span>
        {head?.(row.hunk)}
      </div>
    );
  const kind = row.hunk === null || !side ? row.kind : (side(row.hunk) === "after") === (row.kind === "added") ? "kept" : "dropped";
  return (
    <div className={`dline ${kind}`}>
      <span className="num" aria-hidden="true">{row.before ?? ""}</span>
      <span className="num" aria-hidden="true">{row.after ?? ""}</span>
      <span className="sign" aria-hidden="true">{SIGN[kind]}</span>
      {kind !== "same" && <span className="sr">{kind}: </span>}
      <code><SafeText text={row.text.replace(/\r?\n$/, "")} most={LINE_MOST} /></code>
    </div>
  );
}
