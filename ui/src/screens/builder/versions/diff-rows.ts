// The rows of a text diff: hunks with a few lines around them, and gaps that can be opened.
import type { Hunk } from "@/lib/line-diff";

const AROUND = 3;

export type DiffRow =
  | { kind: "hunk"; key: string; hunk: number; removed: number; added: number }
  /** Numbers of lines, from 1. */
  | { kind: "same" | "removed" | "added"; key: string; text: string; before: number | null; after: number | null; hunk: number | null }
  | { kind: "gap"; key: string; gap: number; count: number };

export interface Compared {
  before: readonly string[];
  after: readonly string[];
  hunks: readonly Hunk[];
}

export function diffRows({ before, after, hunks }: Compared, opened: ReadonlySet<number>): DiffRow[] {
  const rows: DiffRow[] = [];
  const same = (from: number, to: number, ahead: number) => {
    for (let i = from; i < to; i++) rows.push({ kind: "same", key: `s${i}`, text: before[i] ?? "", before: i + 1, after: i + ahead + 1, hunk: null });
  };
  let from = 0;
  hunks.forEach((hunk, i) => {
    between(from, hunk.b0, hunk.a0 - hunk.b0, i, i === 0 ? 0 : AROUND, AROUND);
    rows.push({ kind: "hunk", key: `h${i}`, hunk: i, removed: hunk.b1 - hunk.b0, added: hunk.a1 - hunk.a0 });
    for (let b = hunk.b0; b < hunk.b1; b++) rows.push({ kind: "removed", key: `b${b}`, text: before[b] ?? "", before: b + 1, after: null, hunk: i });
    for (let a = hunk.a0; a < hunk.a1; a++) rows.push({ kind: "added", key: `a${a}`, text: after[a] ?? "", before: null, after: a + 1, hunk: i });
    from = hunk.b1;
  });
  const last = hunks.at(-1);
  between(from, before.length, last ? last.a1 - last.b1 : 0, hunks.length, AROUND, 0);
  return rows;

  function between(start: number, end: number, ahead: number, gap: number, first: number, rest: number) {
    const hidden = end - start - first - rest;
    if (hidden < 2 || opened.has(gap)) return same(start, end, ahead);
    same(start, start + first, ahead);
    rows.push({ kind: "gap", key: `g${gap}`, gap, count: hidden });
    same(end - rest, end, ahead);
  }
}
