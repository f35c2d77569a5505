import { forwardRef, type KeyboardEvent } from "react";
import type { Impact, ServerView } from "@/api/types";
import { Icon } from "@/parts/Icon";
import { EffectMark } from "@/parts/Marks";
import { SafeText } from "@/parts/SafeText";
import { StateIcon, type AnyState } from "@/parts/State";
import { VirtualList, type VirtualListHandle } from "@/parts/VirtualList";
import { nameOf, type Row } from "./rows";

const ROW = 30;
export const SERVER_STATE: Record<ServerView["state"], { state: AnyState; word: string }> = {
  ready: { state: "success", word: "ready" },
  starting: { state: "running", word: "starting" },
  failed: { state: "failed", word: "down" },
  stopped: { state: "cancelled", word: "stopped" },
};

interface Props {
  rows: Row[];
  /** The row that keys move. */
  current: number;
  /** The row whose pane is open. */
  chosen: string | null;
  onOpen: (row: Row) => void;
  onToggle: (name: string, open: boolean) => void;
  onMove: (to: number) => void;
}

const id = (i: number) => `tool-row-${i}`;

export const List = forwardRef<VirtualListHandle, Props>(function List({ rows, current, chosen, onOpen, onToggle, onMove }, ref) {
  const onKeyDown = (event: KeyboardEvent) => {
    const row = rows[current];
    const actions: Record<string, () => void> = {
      ArrowDown: () => onMove(current + 1),
      ArrowUp: () => onMove(current - 1),
      Home: () => onMove(0),
      End: () => onMove(rows.length - 1),
      ArrowRight: () => row?.kind === "server" && onToggle(row.group.name, true),
      ArrowLeft: () => (row?.kind === "server" ? onToggle(row.group.name, false) : row && onMove(rows.findIndex((one) => one.kind === "server" && one.group === row.group))),
      Enter: () => row && onOpen(row),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  return (
    <VirtualList
      ref={ref}
      className="tlist"
      role="tree"
      aria-label="Servers and tools"
      aria-activedescendant={current >= 0 ? id(current) : undefined}
      count={rows.length}
      rowHeight={ROW}
      keyOf={(i) => rows[i]?.key ?? String(i)}
      onKeyDown={onKeyDown}
      row={(i) => {
        const row = rows[i];
        if (!row) return null;
        return (
          <div
            id={id(i)}
            role="treeitem"
            aria-level={row.kind === "server" ? 1 : 2}
            aria-expanded={row.kind === "server" && row.group.tools.length > 0 ? row.open : undefined}
            aria-selected={row.key === chosen}
            className={`trow ${row.kind}${i === current ? " cur" : ""}${row.key === chosen ? " on" : ""}`}
            onClick={() => onOpen(row)}
          >
            <Cells row={row} onToggle={onToggle} />
          </div>
        );
      }}
    />
  );
});

function Cells({ row, onToggle }: { row: Row; onToggle: Props["onToggle"] }) {
  if (row.kind === "reason") return <span className="ell bad"><SafeText text={row.group.server?.reason ?? ""} most={200} /></span>;
  if (row.kind === "tool")
    return (
      <>
        <span className="ell mono"><SafeText text={nameOf(row.tool.id)} most={120} /></span>
        <span className="grow" />
        <EffectMark effect={row.tool.effect as Impact} />
      </>
    );
  const { server, name, tools } = row.group;
  const known = server ? SERVER_STATE[server.state] : null;
  return (
    <>
      <span className="tw" onClick={(event) => { event.stopPropagation(); onToggle(name, !row.open); }}>{tools.length > 0 && <Icon name={row.open ? "i-down" : "i-right"} small />}</span>
      {known && <StateIcon state={known.state} />}
      <b className="ell"><SafeText text={name || "compositions"} most={80} /></b>
      <span className="grow" />
      <span className="muted nowrap">{known && server?.state !== "ready" ? known.word : `${tools.length} tool${tools.length === 1 ? "" : "s"}`}</span>
    </>
  );
}
