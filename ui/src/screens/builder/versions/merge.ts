// Which side a hunk is taken from when a file changed on disk while it was edited here.
import { hunks, lines, type Hunk } from "@/lib/line-diff";

export type Side = "disk" | "mine";

/**
 * For each hunk from disk to mine: the side that changed it. What only the disk changed is taken from there; what was
 * changed here, or on both sides, is kept. Without the text that both began with, everything here is kept.
 */
export function proposed(mine: readonly string[], all: readonly Hunk[], base: string | null): Side[] {
  if (base === null) return all.map(() => "mine");
  const here = hunks(lines(base), mine);
  return all.map((hunk) => (here.some((one) => one.a0 <= hunk.a1 && hunk.a0 <= one.a1 && touches(one, hunk)) ? "mine" : "disk"));
}

/** Ranges of lines in `mine` meet; an empty range meets a range that it stands inside of or at. */
function touches(one: Hunk, hunk: Hunk): boolean {
  if (one.a0 === one.a1 || hunk.a0 === hunk.a1) return true;
  return one.a0 < hunk.a1 && hunk.a0 < one.a1;
}
