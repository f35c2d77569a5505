import { api, unwrap } from "@/api/client";
import type { ValuePage } from "@/api/types";
import { pointer } from "@/lib/expression";
import type { Key } from "@/lib/json-rows";

export type Part = "input" | "output" | "error" | "context";

/** Loads the next part of a value that the preview cut. */
export async function loadMore(id: string, step: string | undefined, part: Part, keys: Key[], offset: number): Promise<unknown> {
  const query = { step, part, pointer: pointer(keys), offset, limit: 1000 };
  const page = await unwrap(api.GET("/api/v1/runs/{id}/value", { params: { path: { id }, query } }));
  return (page as ValuePage).value;
}

export function downloadUrl(id: string, step: string | undefined, part: Part, keys: Key[] = []): string {
  const query = new URLSearchParams({ part, pointer: pointer(keys), download: "true" });
  if (step) query.set("step", step);
  return `/api/v1/runs/${encodeURIComponent(id)}/value?${query}`;
}

/** The whole value, such as a run's input that is to be edited. */
export async function loadWhole(id: string, step: string | undefined, part: Part): Promise<unknown> {
  const response = await fetch(downloadUrl(id, step, part), { credentials: "same-origin" });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.json() as Promise<unknown>;
}
