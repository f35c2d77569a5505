import { flag, oneOf, text, type Search } from "@/lib/search";
import type { RunStatus } from "@/api/types";

export const STATUSES = [
  "pending",
  "running",
  "waiting",
  "success",
  "partial",
  "failed",
  "rolled_back",
  "rollback_failed",
  "cancelled",
  "denied",
  "dry_run",
] as const satisfies readonly RunStatus[];
export const SPANS = ["1h", "24h", "7d", "30d"] as const;
/** What "failed only" shows. */
export const FAILED: RunStatus[] = ["failed", "rolled_back", "rollback_failed"];
export type Span = (typeof SPANS)[number];

export interface RunsSearch {
  status?: RunStatus;
  /** Failed only: also runs that were rolled back. */
  failed?: true;
  name?: string;
  tool?: string;
  span?: Span;
  q?: string;
}

export const runs = (search: Search): RunsSearch => ({
  status: oneOf(search, "status", STATUSES),
  failed: flag(search, "failed"),
  name: text(search, "name"),
  tool: text(search, "tool"),
  span: oneOf(search, "span", SPANS),
  q: text(search, "q"),
});
