import { oneOf, text, type Search } from "@/lib/search";

export interface ToolsSearch {
  q?: string;
  tool?: string;
  server?: string;
  tab?: "form" | "json" | "schema";
}

export const tools = (search: Search): ToolsSearch => ({
  q: text(search, "q"),
  tool: text(search, "tool"),
  server: text(search, "server"),
  tab: oneOf(search, "tab", ["form", "json", "schema"]),
});
