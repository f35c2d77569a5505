import { text, type Search } from "@/lib/search";

export interface EditSearch {
  /** The file to edit; without it, a new composition. */
  file?: string;
  /** The selected step. */
  step?: string;
  /** What a new composition begins with: `scratch`, `words`, `template:ID`, `plan:ID`, `run:ID`, or `composition:NAME`. */
  from?: string;
}

export const edit = (search: Search): EditSearch => ({ file: text(search, "file"), step: text(search, "step"), from: text(search, "from") });
