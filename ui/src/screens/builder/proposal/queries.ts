import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { PlanDetails } from "../../plans/queries";

/** The words for the model. It plans from nothing, so a change carries the text that is to be changed. */
export function wordsFor(words: string, current: string | null): string {
  if (current === null) return words;
  return `${words}\n\nChange this composition. Keep the ids of its steps, and every step that the request does not concern:\n\n${current}`;
}

export const askPlan = (query: string, signal: AbortSignal): Promise<PlanDetails> => unwrap(api.POST("/api/v1/plans/ask", { body: { query, fresh: true }, signal }));

export const deletePlan = (id: string): Promise<unknown> => unwrap(api.DELETE("/api/v1/plans/{id}", { params: { path: { id } } }));

/** The proposal as a composition of this name. */
export const proposalTextQuery = (id: string, name: string | null) =>
  queryOptions({
    queryKey: ["plan-text", id, name],
    queryFn: () => unwrap(api.GET("/api/v1/plans/{id}/composition", { params: { path: { id }, query: name === null ? {} : { name } }, parseAs: "text" })) as Promise<unknown> as Promise<string>,
    staleTime: Infinity,
  });

/** Why the model chose these steps. */
export function reasoning(details: PlanDetails): string | null {
  const { plan } = details;
  const said: unknown = typeof plan === "object" && plan !== null ? (plan as Record<string, unknown>).reasoning : null;
  return typeof said === "string" && said.trim() !== "" ? said : null;
}
