import { oneOf, text, type Search } from "@/lib/search";

export interface CompositionSearch {
  q?: string;
  step?: string;
  view?: "graph" | "plan" | "run";
}

export const composition = (search: Search): CompositionSearch => ({
  q: text(search, "q"),
  step: text(search, "step"),
  view: oneOf(search, "view", ["graph", "plan", "run"]),
});
