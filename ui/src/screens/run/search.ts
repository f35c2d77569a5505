import { oneOf, text, type Search } from "@/lib/search";

export const VIEWS = ["graph", "timeline", "outline"] as const;
export const TABS = ["step", "items", "input", "output", "attempts", "source"] as const;
export type RunViewName = (typeof VIEWS)[number];
export type PanelTab = (typeof TABS)[number];

export interface RunSearch {
  view?: RunViewName;
  /** The path of the selected step, such as `each[2]/parse`, or of an item, such as `each[2]`. */
  step?: string;
  tab?: PanelTab;
  /** The selected attempt of the step. */
  attempt?: string;
}

export const run = (search: Search): RunSearch => ({
  view: oneOf(search, "view", VIEWS),
  step: text(search, "step"),
  tab: oneOf(search, "tab", TABS),
  attempt: text(search, "attempt"),
});
