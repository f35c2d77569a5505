import { useCallback, useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { announce } from "@/app/announce";
import { useShortcuts } from "@/app/shortcuts";
import { VirtualList, type VirtualListHandle } from "@/parts/VirtualList";
import { stateWord } from "@/parts/State";
import { useRunContext } from "../context";
import { rowsOf, type Opened, type Row } from "../rows";

interface Props {
  label: string;
  className: string;
  rowHeight: number;
  head: ReactNode;
  columns: number;
  row: (row: Row, toggle: () => void) => ReactNode;
}

/** A tree grid over the run's steps: what timeline and outline share. */
export function TreeRows({ label, className, rowHeight, head, columns, row }: Props) {
  const { model, selected, select } = useRunContext();
  const [opened, setOpened] = useState<Opened>(new Map());
  const list = useRef<VirtualListHandle>(null);
  const rows = useMemo(() => rowsOf(model, opened, selected), [model, opened, selected]);
  const at = rows.findIndex((one) => one.path === selected);
  const toggle = useCallback((one: Row, open: boolean) => setOpened((now) => new Map(now).set(one.path, open)), []);
  const go = (to: number) => {
    // A group is no step: the keys go over it.
    let index = Math.max(0, Math.min(rows.length - 1, to));
    if (rows[index]?.kind === "group") index += to >= at ? 1 : -1;
    const next = rows[index];
    if (!next) return;
    select(next.path);
    announce(`${next.path}, ${stateWord(next.state)}, needs ${next.needs}`);
  };
  const first = useRef(true);
  useEffect(() => {
    if (at >= 0) list.current?.scrollTo(at);
    first.current = false;
  }, [at]);
  const side = (open: boolean) => {
    const here = rows[at];
    if (!here) return go(0);
    if (here.open !== null && here.open !== open) return toggle(here, open);
    go(open ? at + 1 : rows.findLastIndex((other, i) => i < at && other.depth < here.depth));
  };
  useShortcuts({
    j: () => go(at + 1),
    k: () => go(at < 0 ? 0 : at - 1),
    ArrowDown: () => go(at + 1),
    ArrowUp: () => go(at < 0 ? 0 : at - 1),
    ArrowRight: () => side(true),
    ArrowLeft: () => side(false),
    Home: () => go(0),
    End: () => go(rows.length - 1),
  });
  const onKeyDown = (event: KeyboardEvent) => {
    const here = rows[at];
    if (here?.open === null || !here || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    toggle(here, !here.open);
  };
  return (
    <VirtualList
      ref={list}
      className={className}
      role="treegrid"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      aria-colcount={columns}
      aria-activedescendant={at >= 0 ? rowId(rows[at]?.path ?? "") : undefined}
      count={rows.length}
      active={at}
      rowHeight={rowHeight}
      keyOf={(i) => rows[i]?.path ?? String(i)}
      head={head}
      onKeyDown={onKeyDown}
      row={(i) => {
        const one = rows[i];
        if (!one) return null;
        return (
          <div
            id={rowId(one.path)}
            role="row"
            aria-level={one.depth + 1}
            aria-rowindex={i + 2}
            aria-expanded={one.open ?? undefined}
            aria-selected={i === at}
            className={`trow${i === at ? " sel" : ""}${one.kind === "item" ? " item" : ""}`}
            onClick={() => (one.kind === "group" ? toggle(one, !one.open) : select(one.path))}
          >
            {row(one, () => toggle(one, !one.open))}
          </div>
        );
      }}
    />
  );
}

const rowId = (path: string): string => `row-${path}`;

/** The triangle before a name. The row itself opens with the right arrow. */
export function Twist({ row, toggle }: { row: Row; toggle: () => void }) {
  if (row.open === null) return <span className="twist" />;
  return (
    <button
      type="button"
      className="twist"
      tabIndex={-1}
      aria-label={row.open ? "Close" : "Open"}
      onClick={(event) => {
        event.stopPropagation();
        toggle();
      }}
    >
      {row.open ? "▾" : "▸"}
    </button>
  );
}
