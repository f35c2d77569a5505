import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { PlanView, TemplateView } from "@/api/types";

export const templatesQuery = (search: string | undefined) =>
  queryOptions({
    queryKey: ["templates", search ?? ""],
    queryFn: () => unwrap(api.GET("/api/v1/compositions/templates", { params: { query: search ? { search } : {} } })),
    placeholderData: keepPreviousData,
    refetchOnMount: "always",
  });

export const templateQuery = (id: string) =>
  queryOptions({
    queryKey: ["template", id],
    queryFn: () => unwrap(api.GET("/api/v1/compositions/templates/{id}", { params: { path: { id } } })),
    refetchOnMount: "always",
  });

export const templatePlanQuery = (id: string) =>
  queryOptions({
    queryKey: ["template-plan", id],
    queryFn: () => unwrap(api.POST("/api/v1/plans", { body: { template_id: id } })) as Promise<PlanView>,
  });

/** Text is shown as it was written; an object as JSON. */
export function sourceOf(composition: unknown): { text: string; format: "yaml" | "json" } | null {
  if (composition === undefined || composition === null) return null;
  if (typeof composition === "string") return { text: composition, format: composition.trimStart().startsWith("{") ? "json" : "yaml" };
  return { text: JSON.stringify(composition, null, 2), format: "json" };
}

/** `94 % of 31 runs`, or that nothing ran it. */
export function use({ usage_count: runs, success_rate: rate }: TemplateView["metadata"]): string {
  if (runs === 0) return "never used";
  const share = rate === null || rate === undefined ? "" : `, ${Math.round(rate * 100)} % succeeded`;
  return `${runs === 1 ? "1 run" : `${runs.toLocaleString("en-US")} runs`}${share}`;
}
