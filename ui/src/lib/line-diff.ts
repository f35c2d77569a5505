// Which lines differ between two texts, by Myers' algorithm. A line keeps its line break, so that texts put together from
// both sides have the bytes of the side that each line came from.

/** Lines `before[b0..b1]` became `after[a0..a1]`; from 0, the end is exclusive. */
export interface Hunk {
  b0: number;
  b1: number;
  a0: number;
  a1: number;
}

/** With more differing lines than this, what stands between the common beginning and end is one hunk. */
const DISTANCE_MOST = 1500;

export const lines = (text: string): string[] => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];

export function hunks(before: readonly string[], after: readonly string[]): Hunk[] {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  const b = before.slice(head, before.length - tail);
  const a = after.slice(head, after.length - tail);
  if (b.length === 0 && a.length === 0) return [];
  const found = b.length === 0 || a.length === 0 ? null : myers(numbers(b, a), b.length);
  const inner = found ?? [{ b0: 0, b1: b.length, a0: 0, a1: a.length }];
  return inner.map((one) => ({ b0: one.b0 + head, b1: one.b1 + head, a0: one.a0 + head, a1: one.a1 + head }));
}

/** Lines as numbers: equal lines have equal numbers. */
function numbers(b: readonly string[], a: readonly string[]): Int32Array {
  const known = new Map<string, number>();
  const number = (line: string): number => {
    const found = known.get(line);
    if (found !== undefined) return found;
    known.set(line, known.size);
    return known.size - 1;
  };
  return Int32Array.from([...b.map(number), ...a.map(number)]);
}

/** `all` holds the lines of both sides, those before first. Null when they are too different. */
function myers(all: Int32Array, n: number): Hunk[] | null {
  const m = all.length - n;
  const most = Math.min(n + m, DISTANCE_MOST);
  const offset = most + 1;
  const reach = new Int32Array(2 * offset + 1);
  const trace: Int32Array[] = [];
  for (let d = 0; d <= most; d++) {
    trace.push(reach.slice(offset - d - 1, offset + d + 2));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && at(reach, offset + k - 1) < at(reach, offset + k + 1));
      let x = down ? at(reach, offset + k + 1) : at(reach, offset + k - 1) + 1;
      while (x < n && x - k < m && all[x] === all[n + x - k]) x++;
      reach[offset + k] = x;
      if (x >= n && x - k >= m) return path(trace, n, m);
    }
  }
  return null;
}

const at = (array: Int32Array, i: number): number => array[i] ?? 0;

/** Goes back through the traces; neighbouring steps become one hunk. */
function path(trace: readonly Int32Array[], n: number, m: number): Hunk[] {
  const out: Hunk[] = [];
  let x = n;
  let y = m;
  for (let d = trace.length - 1; d > 0; d--) {
    const reach = trace[d] as Int32Array;
    const get = (k: number) => at(reach, k + d + 1);
    const k = x - y;
    const down = k === -d || (k !== d && get(k - 1) < get(k + 1));
    const before = down ? k + 1 : k - 1;
    const px = get(before);
    const py = px - before;
    const step: Hunk = down ? { b0: px, b1: px, a0: py, a1: py + 1 } : { b0: px, b1: px + 1, a0: py, a1: py };
    const next = out.at(-1);
    if (next && next.b0 === step.b1 && next.a0 === step.a1) Object.assign(next, { b0: step.b0, a0: step.a0 });
    else out.push(step);
    x = px;
    y = py;
  }
  return out.reverse();
}

/** The text before with some hunks taken from after. With none it is `before`, with all it is `after`, to the byte. */
export function withHunks(before: readonly string[], after: readonly string[], all: readonly Hunk[], taken: (index: number) => boolean): string {
  const out: string[] = [];
  let from = 0;
  all.forEach((hunk, i) => {
    if (!taken(i)) return;
    out.push(...before.slice(from, hunk.b0));
    // A line that was the last one gets a line break when another one follows it.
    const added = after.slice(hunk.a0, hunk.a1);
    const last = out.at(-1);
    if (last !== undefined && added.length > 0 && !last.endsWith("\n")) out[out.length - 1] = `${last}\n`;
    const end = added.at(-1);
    if (end !== undefined && !end.endsWith("\n") && hunk.b1 < before.length) added[added.length - 1] = `${end}\n`;
    out.push(...added);
    from = hunk.b1;
  });
  out.push(...before.slice(from));
  return out.join("");
}
