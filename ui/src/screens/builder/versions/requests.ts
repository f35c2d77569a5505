import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { components } from "@/api/schema";
import type { PlanStepView } from "@/api/types";
import { language } from "../language";

type Schemas = components["schemas"];
/** One difference of one step. */
export type StepChange = Schemas["StepVersionChange"];
/** The steps that differ, and what callers of the composition may notice. */
export type TextComparison = Schemas["VersionComparison"];

export interface Version {
  text: string;
  /** `on disk`, `mine`, `saved 09:12`. */
  label: string;
}

export const compareQuery = (before: string, after: string, name: string | null) =>
  queryOptions({
    queryKey: ["language-compare", before, after, name],
    queryFn: ({ signal }) => unwrap(api.POST("/api/v1/language/compare", { body: { before, after, name }, signal })),
    staleTime: Infinity,
    gcTime: 0,
  });

export const stepsQuery = (text: string, name: string | null) =>
  queryOptions({
    queryKey: ["language-steps", text, name],
    queryFn: async ({ signal }): Promise<PlanStepView[]> => (await language.analyze(text, name, signal)).steps,
    staleTime: Infinity,
    gcTime: 0,
  });
