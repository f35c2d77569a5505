// Servers and their tools as one list.
import type { RollbackView, ServerView, Tool } from "@/api/types";

export interface ServerGroup {
  name: string;
  /** Null when the principal may not see servers, or the tools come from none. */
  server: ServerView | null;
  tools: Tool[];
}
export type Row =
  | { kind: "server"; key: string; group: ServerGroup; open: boolean }
  | { kind: "reason"; key: string; group: ServerGroup }
  | { kind: "tool"; key: string; group: ServerGroup; tool: Tool };

export const serverOf = (id: string): string => (id.includes(":") ? id.slice(0, id.indexOf(":")) : "");
export const nameOf = (id: string): string => id.slice(id.indexOf(":") + 1);

const ORDER = ["failed", "starting", "stopped", "ready"];

/** What is down comes first, then by name. */
export function groups(servers: ServerView[], tools: Tool[]): ServerGroup[] {
  const all = new Map<string, ServerGroup>(servers.map((server) => [server.name, { name: server.name, server, tools: [] }]));
  for (const tool of tools) {
    const name = serverOf(tool.id);
    const group = all.get(name) ?? { name, server: null, tools: [] };
    group.tools.push(tool);
    all.set(name, group);
  }
  const rank = (group: ServerGroup) => ORDER.indexOf(group.server?.state ?? "ready");
  return [...all.values()].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

export function rowsOf(all: ServerGroup[], q: string | undefined, isOpen: (name: string) => boolean): Row[] {
  const words = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (tool: Tool) => words.every((word) => `${tool.id} ${tool.description} ${tool.effect} ${tool.tags.join(" ")}`.toLowerCase().includes(word));
  return all.flatMap((group): Row[] => {
    const found = words.length > 0 ? group.tools.filter(fits) : group.tools;
    const named = words.length > 0 && words.every((word) => group.name.toLowerCase().includes(word));
    if (words.length > 0 && found.length === 0 && !named) return [];
    const open = words.length > 0 || isOpen(group.name);
    const head: Row[] = [{ kind: "server", key: `server ${group.name}`, group, open }];
    if (group.server?.reason) head.push({ kind: "reason", key: `reason ${group.name}`, group });
    return open ? [...head, ...found.map((tool): Row => ({ kind: "tool", key: tool.id, group, tool }))] : head;
  });
}

/** How the definition of a tool says that its call is rolled back. */
export function rollbackOf(declared: unknown): RollbackView {
  if (declared === "none") return { kind: "not_needed" };
  if (typeof declared === "object" && declared !== null) {
    if ("tool" in declared && typeof declared.tool === "string") return { kind: "call", tool: declared.tool };
    if ("impossible" in declared) return { kind: "impossible", reason: String(declared.impossible) };
  }
  return { kind: "unknown" };
}

export interface Observed {
  calls: number;
  failures: number;
  p50: number | null;
  p95: number | null;
}

export function observedOf(tool: Tool): Observed | null {
  const given = tool.observed;
  if (typeof given !== "object" || given === null) return null;
  const read = (key: string): number | null => {
    const value: unknown = (given as Record<string, unknown>)[key];
    return typeof value === "number" ? value : null;
  };
  const calls = read("calls");
  return calls === null ? null : { calls, failures: read("failures") ?? 0, p50: read("p50_ms"), p95: read("p95_ms") };
}

/** `1.8 % of 1,120 calls`. */
export function failureRate({ calls, failures }: Observed): string {
  if (calls === 0) return "never called";
  const percent = (100 * failures) / calls;
  return `${percent === 0 ? "0" : percent < 0.1 ? "< 0.1" : percent.toFixed(1)} % of ${calls.toLocaleString("en-US")}`;
}

export const milliseconds = (ms: number): string => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`);
