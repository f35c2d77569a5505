// Paths of steps: `outer[2]/inner[0]/call#2`. An item of a loop is `outer[2]`.

export interface Segment {
  id: string;
  item: number | null;
}

export function segments(path: string): Segment[] {
  return path.split("/").map((part) => {
    const match = /^(.*?)(?:\[(\d+)\])?$/.exec(part);
    return { id: match?.[1] ?? part, item: match?.[2] === undefined ? null : Number(match[2]) };
  });
}

/** The path without items, visits and rollback bodies: the step of the plan. */
export function planPath(path: string): string {
  return segments(path)
    .map((part) => part.id.replace(/(#\d+)?(~undo)?$/, ""))
    .join("/");
}

/** `a[1]/b[2]/c` → `a[1]/b[2]`, → `a[1]/b`, → `a[1]`, → `a`, → null. */
export function parentPath(path: string): string | null {
  const item = /^(.*)\[\d+\]$/.exec(path);
  if (item) return item[1] ?? null;
  const cut = path.lastIndexOf("/");
  return cut < 0 ? null : path.slice(0, cut);
}

/** `a[1]/b[2]/c` → `a`: the step of the composition itself that holds it. */
export const outermost = (path: string): string => planPath(path).split("/")[0] ?? path;

export function lastId(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Which item of the loop `loop` the path is in, or null. */
export function itemOf(path: string, loop: string): number | null {
  if (!path.startsWith(`${loop}[`)) return null;
  const match = /^\[(\d+)\]/.exec(path.slice(loop.length));
  return match ? Number(match[1]) : null;
}

/** The step's path inside an item: chooses `[0]` for loops that `items` does not know. */
export function placePath(plan: string, items: Record<string, number>): string {
  let out = "";
  const parts = plan.split("/");
  parts.forEach((part, i) => {
    out += part;
    if (i < parts.length - 1) {
      const item = items[out];
      out += item === undefined ? "/" : `[${item}]/`;
    }
  });
  return out;
}
