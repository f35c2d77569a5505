import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { RunFilter } from "@/api/live";
import { FAILED, type RunsSearch, type Span } from "./search";

const HOUR = 3_600_000;
export const SPAN_MS: Record<Span, number> = { "1h": HOUR, "24h": 24 * HOUR, "7d": 7 * 24 * HOUR, "30d": 30 * 24 * HOUR };
const PAGE = 60;

/** Rounded to the minute, so that the same filter has the same key for a while. */
export function filterOf(search: RunsSearch, now = Date.now()): RunFilter {
  const minute = Math.floor(now / 60_000) * 60_000;
  const filter: RunFilter = { status: search.failed ? FAILED : search.status && [search.status], name: search.name, tool: search.tool, text: search.q, since_ms: search.span && minute - SPAN_MS[search.span] };
  for (const key of Object.keys(filter) as (keyof RunFilter)[]) if (filter[key] === undefined) delete filter[key];
  return filter;
}

export const runsQuery = (filter: RunFilter) =>
  infiniteQueryOptions({
    queryKey: ["runs", filter],
    queryFn: ({ pageParam }) =>
      unwrap(api.GET("/api/v1/runs", { params: { query: { ...(filter as object), limit: PAGE, cursor: pageParam ?? undefined } } })),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? undefined,
    // The event stream keeps a loaded list current; opening the screen again asks anew.
    refetchOnMount: "always",
  });
