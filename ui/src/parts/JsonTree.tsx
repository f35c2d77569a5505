import { useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { bytes, count } from "@/lib/format";
import { expression } from "@/lib/expression";
import { plainText } from "@/lib/safe-text";
import { ENTRIES_MOST, STRING_MOST, treeRows, type Key, type TreeRow } from "@/lib/json-rows";
import { copy } from "./Copy";
import { Icon } from "./Icon";
import { SafeText } from "./SafeText";
import { VirtualList, type VirtualListHandle } from "./VirtualList";

const ROW = 21;
const ROWS_MOST = 18;

/** Loads what the server left out of a value: entries from `offset` on, or a longer string. */
export type LoadMore = (keys: Key[], offset: number) => Promise<unknown>;

interface Props {
  value: unknown;
  /** The name at the root, and of the copied expression. */
  name: string;
  label: string;
  /** Without it, paths are shown but no expression can be copied. */
  root?: string;
  load?: LoadMore;
  downloadUrl?: (keys: Key[]) => string;
  openDepth?: number;
  actions?: TreeActions;
}

/** What else can be done with a row than copying its expression below `root`. */
export interface TreeActions {
  /** Null where a row has no expression. */
  expression: (keys: Key[]) => string | null;
  /** Texts at a place are words for types, not values. */
  typed: (keys: Key[]) => boolean;
  mark: (keys: Key[]) => ReactNode;
  drag: (data: DataTransfer, keys: Key[]) => void;
  /** What the key `i` and a button of the row do. */
  use: (keys: Key[]) => void;
  useLabel: string;
}

export function JsonTree({ value, name, label, root, load, downloadUrl, openDepth = 1, actions }: Props) {
  const [toggled, setToggled] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [shown, setShown] = useState<ReadonlyMap<string, number>>(new Map());
  const [loaded, setLoaded] = useState<ReadonlyMap<string, unknown>>(new Map());
  const [at, setAt] = useState(0);
  const list = useRef<VirtualListHandle>(null);
  const rows = useMemo(
    () =>
      treeRows(value, {
        isOpen: (id, depth) => toggled.get(id) ?? depth < openDepth,
        shown: (id) => shown.get(id) ?? ENTRIES_MOST,
        loaded: (id) => loaded.get(id),
      }),
    [value, toggled, shown, loaded, openDepth],
  );
  const current = Math.min(at, rows.length - 1);
  const toggle = (row: TreeRow, open: boolean) => setToggled((now) => new Map(now).set(row.id, open));
  const more = async (row: TreeRow) => {
    const id = row.id.replace(/\+$/, "");
    const have = rows.find((other) => other.id === id)?.value;
    const size = typeof have === "object" && have !== null ? Object.keys(have).length : String(have ?? "").length;
    const now = shown.get(id) ?? ENTRIES_MOST;
    if (row.kind === "more" && size > now) return setShown((m) => new Map(m).set(id, now + 10 * ENTRIES_MOST));
    if (!load) return;
    const next = await load(row.keys, size);
    const joined =
      typeof have === "string" ? have + String(next) : Array.isArray(have) ? [...have, ...(next as unknown[])] : { ...(have as object), ...(next as object) };
    setLoaded((m) => new Map(m).set(id, joined));
    setShown((m) => new Map(m).set(id, now + 10 * ENTRIES_MOST));
  };
  const expressionOf = (keys: Key[]): string | null => (actions ? actions.expression(keys) : root ? expression(root, keys) : null);
  const copyRow = (row: TreeRow | undefined) => {
    const text = row && row.kind !== "more" ? expressionOf(row.keys) : null;
    if (text) void copy(text, `Copied ${text}`);
  };
  const useRow = (row: TreeRow | undefined) => row && row.kind !== "more" && expressionOf(row.keys) !== null && actions?.use(row.keys);
  const onKeyDown = (event: KeyboardEvent) => {
    const row = rows[current];
    if (!row) return;
    const go = (to: number) => {
      const next = Math.max(0, Math.min(rows.length - 1, to));
      setAt(next);
      list.current?.scrollTo(next);
    };
    const handlers: Record<string, () => void> = {
      ArrowDown: () => go(current + 1),
      ArrowUp: () => go(current - 1),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      ArrowRight: () => (row.open ? go(current + 1) : toggle(row, true)),
      ArrowLeft: () => (row.open ? toggle(row, false) : go(rows.findLastIndex((other, i) => i < current && other.depth < row.depth))),
      Enter: () => (row.kind === "more" ? void more(row) : toggle(row, !row.open)),
      c: () => copyRow(row),
      ...(actions ? { i: () => useRow(row) } : {}),
    };
    const action = handlers[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  return (
    <VirtualList
      ref={list}
      className="tree"
      role="tree"
      aria-label={label}
      aria-activedescendant={`${label}-${current}`.replaceAll(" ", "-")}
      style={{ height: Math.min(rows.length, ROWS_MOST) * ROW + 10 }}
      count={rows.length}
      active={current}
      rowHeight={ROW}
      onKeyDown={onKeyDown}
      row={(i) => {
        const row = rows[i];
        if (!row) return null;
        return (
          <Row
            id={`${label}-${i}`.replaceAll(" ", "-")}
            row={row}
            name={name}
            current={i === current}
            text={row.kind === "more" ? null : expressionOf(row.keys)}
            actions={actions}
            onCopy={() => copyRow(row)}
            onToggle={() => {
              setAt(i);
              if (row.kind === "more" || (row.kind === "string" && row.cutBytes !== null)) void more(row);
              else if (row.length > 0) toggle(row, !row.open);
            }}
            download={row.cutBytes !== null ? downloadUrl?.(row.keys) : undefined}
          />
        );
      }}
    />
  );
}

interface RowProps {
  id: string;
  row: TreeRow;
  name: string;
  current: boolean;
  /** Its expression, where it has one. */
  text: string | null;
  actions: TreeActions | undefined;
  onCopy: () => void;
  onToggle: () => void;
  download: string | undefined;
}

function Row({ id, row, name, current, text, actions, onCopy, onToggle, download }: RowProps) {
  const branch = (row.kind === "object" || row.kind === "array") && row.length > 0;
  const key = row.keys.at(-1);
  return (
    <div
      id={id}
      role="treeitem"
      aria-level={row.depth + 1}
      aria-expanded={branch ? row.open : undefined}
      aria-selected={current}
      className={`tr${current ? " on" : ""}`}
      style={{ paddingInlineStart: 8 + row.depth * 14 }}
      onClick={onToggle}
      draggable={actions && text !== null ? true : undefined}
      onDragStart={actions && ((event) => actions.drag(event.dataTransfer, row.keys))}
    >
      <span className="tw" aria-hidden="true">{branch ? (row.open ? "▾" : "▸") : ""}</span>
      {row.kind === "more" ? (
        <span className="link">Load more: {count(row.length)} left</span>
      ) : (
        <>
          <span className={typeof key === "number" ? "qq" : "k"}><SafeText text={key === undefined ? name : String(key)} most={80} /></span>
          {actions?.typed(row.keys) && row.kind === "string" ? <span className="qq"><SafeText text={String(row.value)} most={80} /></span> : <Value row={row} />}
          {actions?.mark(row.keys)}
        </>
      )}
      {row.cutBytes !== null && row.kind !== "more" && <span className="size">{bytes(row.cutBytes)}, cut</span>}
      {download && <a className="link" href={download} download onClick={(event) => event.stopPropagation()}>Download</a>}
      {text !== null && (
        <span className="cps">
          {actions && (
            <button
              type="button"
              className="cp"
              tabIndex={-1}
              aria-label={`${actions.useLabel} ${plainText(text)}`}
              onClick={(event) => {
                event.stopPropagation();
                actions.use(row.keys);
              }}
            >
              <Icon name="i-in" small />
              {actions.useLabel}
            </button>
          )}
          <button
            type="button"
            className="cp"
            tabIndex={-1}
            aria-label={`Copy ${plainText(text)}`}
            onClick={(event) => {
              event.stopPropagation();
              onCopy();
            }}
          >
            <Icon name="i-copy" small />
            <span className="ell">Copy <SafeText text={text} most={200} /></span>
          </button>
        </span>
      )}
    </div>
  );
}

function Value({ row }: { row: TreeRow }) {
  switch (row.kind) {
    case "object":
      return <span className="qq">{row.length === 0 ? "{} empty" : `{${count(row.length)}}`}</span>;
    case "array":
      return <span className="qq">{row.length === 0 ? "[] empty" : `[${count(row.length)}]`}</span>;
    case "string": {
      const text = String(row.value);
      const whole = row.cutBytes === null && text.length <= STRING_MOST;
      return (
        <>
          <span className="v s" title={whole ? undefined : `${count(row.length)} characters`}>
            "<SafeText text={text.replaceAll("\n", "\\n")} most={row.cutBytes === null ? STRING_MOST : 4000} />{whole && '"'}
          </span>
          {!whole && row.cutBytes === null && <span className="size">{count(row.length)} characters</span>}
        </>
      );
    }
    default:
      return <span className="v n">{String(row.value ?? "null")}</span>;
  }
}
