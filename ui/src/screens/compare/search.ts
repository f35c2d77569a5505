import { flag, text, type Search } from "@/lib/search";

export interface CompareSearch {
  left?: string;
  right?: string;
  /** Only steps that differ. */
  differing?: true;
  step?: string;
}

export const compare = (search: Search): CompareSearch => ({
  left: text(search, "left"),
  right: text(search, "right"),
  differing: flag(search, "differing"),
  step: text(search, "step"),
});
