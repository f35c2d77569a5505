import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { ApiError, api, unwrap } from "@/api/client";
import type { components } from "@/api/schema";
import type { PlanView } from "@/api/types";
import { allSteps } from "@/lib/plan-rows";
import type { PlansSearch } from "./search";

type Schemas = components["schemas"];
export type PlanDetails = Schemas["PlanDetails"];
export type PlannedView = Schemas["PlannedView"];
export type PlanOffer = Schemas["PlanOffer"];

export const plansQuery = (state: PlansSearch["state"]) =>
  infiniteQueryOptions({
    queryKey: ["plans", state ?? ""],
    queryFn: ({ pageParam }) => unwrap(api.GET("/api/v1/plans", { params: { query: { state, limit: 50, cursor: pageParam ?? undefined } } })),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? undefined,
    refetchOnMount: "always",
  });

export const planQuery = (id: string) =>
  queryOptions({
    queryKey: ["plan", id],
    queryFn: () => unwrap(api.GET("/api/v1/plans/{id}", { params: { path: { id } } })),
  });

export const planTextQuery = (id: string) =>
  queryOptions({
    queryKey: ["plan-text", id],
    queryFn: () => unwrap(api.GET("/api/v1/plans/{id}/composition", { params: { path: { id }, query: {} }, parseAs: "text" })) as Promise<unknown> as Promise<string>,
    staleTime: Infinity,
  });

/** No model is configured: the page then says how to name one. */
export const noModel = (error: unknown): boolean => error instanceof ApiError && error.problem.code === "llm" && /no model is configured/.test(error.message);

/** What a reader should know before accepting, the worst first. */
export function unknowns(details: PlanDetails): string[] {
  const plan = details.checked as PlanView | null | undefined;
  const said = [...(details.warnings ?? [])];
  if (!plan) return ["It does not fit the tools that exist now, so it cannot run.", ...said];
  const steps = allSteps(plan.steps);
  const names = (some: typeof steps) => some.map((step) => step.id).join(", ");
  const destroys = steps.filter((step) => step.effect === "destroys");
  const unknown = steps.filter((step) => step.effect === "unknown");
  const stays = steps.filter((step) => ["impossible", "unknown"].includes(step.rollback.kind) && ["writes", "destroys", "unknown"].includes(step.effect));
  if (destroys.length > 0) said.push(`Destroys something: ${names(destroys)}. Segue asks before each of these calls.`);
  if (unknown.length > 0) said.push(`The effect is unknown: ${names(unknown)}. Segue asks before each of these calls.`);
  if (stays.length > 0) said.push(`Cannot be rolled back: ${names(stays)}.`);
  return said;
}
