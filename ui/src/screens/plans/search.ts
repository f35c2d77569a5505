import { oneOf, text, type Search } from "@/lib/search";

export const PANES = ["graph", "plan", "text"] as const;
export const STATES = ["pending", "in-progress", "completed", "failed"] as const;

export interface PlansSearch {
  /** The words that stand in the field. */
  q?: string;
  /** The stored plan that is shown. */
  plan?: string;
  state?: (typeof STATES)[number];
  pane?: (typeof PANES)[number];
}

export const plans = (search: Search): PlansSearch => ({
  q: text(search, "q"),
  plan: text(search, "plan"),
  state: oneOf(search, "state", STATES),
  pane: oneOf(search, "pane", PANES),
});
