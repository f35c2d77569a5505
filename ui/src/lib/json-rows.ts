// The rows of a JSON tree: only what is open becomes a row, so a tree of any size can be virtual.
import type { CutValue } from "@/api/types";

export const STRING_MOST = 200;
export const ENTRIES_MOST = 100;

export type Key = string | number;
export interface TreeRow {
  /** Joined keys: identifies the row. */
  id: string;
  keys: Key[];
  depth: number;
  kind: "object" | "array" | "string" | "number" | "boolean" | "null" | "more";
  value: unknown;
  open: boolean;
  /** Number of entries or characters; of a cut value the whole one's. */
  length: number;
  /** Bytes of the whole value, where the server cut it. */
  cutBytes: number | null;
}

export function isCut(value: unknown): value is CutValue {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const keys = Object.keys(value);
  if (keys.length !== 1 || keys[0] !== "$cut") return false;
  const inner = (value as CutValue).$cut;
  return typeof inner === "object" && inner !== null && "kind" in inner && "bytes" in inner && "length" in inner;
}

/** Whether a preview left something out of a value: then it cannot be copied from it. */
export function hasCut(value: unknown): boolean {
  if (isCut(value)) return true;
  if (typeof value !== "object" || value === null) return false;
  return Object.values(value).some(hasCut);
}

export function kindOf(value: unknown): Exclude<TreeRow["kind"], "more"> {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "array";
  const type = typeof value;
  return type === "object" ? "object" : type === "string" ? "string" : type === "number" ? "number" : "boolean";
}

export const rowId = (keys: Key[]): string => JSON.stringify(keys);

interface Walk {
  isOpen: (id: string, depth: number) => boolean;
  /** How many entries of a long array or object are shown. */
  shown: (id: string) => number;
  /** Entries that were loaded in place of a cut value. */
  loaded: (id: string) => unknown;
}

export function treeRows(root: unknown, walk: Walk): TreeRow[] {
  const rows: TreeRow[] = [];
  const visit = (keys: Key[], given: unknown): void => {
    const id = rowId(keys);
    const cutValue = isCut(given) ? given.$cut : null;
    const value = walk.loaded(id) ?? (cutValue ? cutValue.preview : given);
    const kind = cutValue ? cutValue.kind : kindOf(value);
    const entries = entriesOf(value);
    const length = cutValue?.length ?? (kind === "string" ? String(value).length : entries.length);
    const open = entries.length > 0 && walk.isOpen(id, keys.length);
    rows.push({ id, keys, depth: keys.length, kind, value, open, length, cutBytes: cutValue?.bytes ?? null });
    if (!open) return;
    const most = Math.min(entries.length, walk.shown(id));
    for (const [key, child] of entries.slice(0, most)) visit([...keys, key], child);
    const left = length - most;
    if (left > 0)
      rows.push({ id: `${id}+`, keys, depth: keys.length + 1, kind: "more", value: null, open: false, length: left, cutBytes: cutValue?.bytes ?? null });
  };
  visit([], root);
  return rows;
}

function entriesOf(value: unknown): [Key, unknown][] {
  if (Array.isArray(value)) return value.map((child, i) => [i, child]);
  if (typeof value === "object" && value !== null) return Object.entries(value);
  return [];
}
