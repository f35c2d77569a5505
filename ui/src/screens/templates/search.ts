import { oneOf, text, type Search } from "@/lib/search";

export const PANES = ["graph", "plan", "text"] as const;

export interface TemplatesSearch {
  q?: string;
  category?: string;
  /** The selected template. */
  id?: string;
  pane?: (typeof PANES)[number];
}

export const templates = (search: Search): TemplatesSearch => ({
  q: text(search, "q"),
  category: text(search, "category"),
  id: text(search, "id"),
  pane: oneOf(search, "pane", PANES),
});
