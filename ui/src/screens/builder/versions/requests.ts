import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { PlanStepView } from "@/api/types";
import { language } from "../language";

export interface StepChange {
  step: string;
  change: "added" | "removed" | "changed" | "moved" | "renamed";
  /** What differs: names of fields. */
  fields?: string[];
  /** The id before, of a renamed step. */
  was?: string | null;
}
export interface TextComparison {
  steps: StepChange[];
  /** What the tool that the composition is served as asks and gives now. */
  interface: { breaking: boolean; message: string }[];
}
export interface Version {
  text: string;
  /** `on disk`, `mine`, `saved 09:12`. */
  label: string;
}

type Post = (path: string, init: { body: unknown; signal?: AbortSignal }) => Promise<{ data?: unknown; error?: unknown; response: Response }>;

export const compareQuery = (before: string, after: string, name: string | null) =>
  queryOptions({
    queryKey: ["language-compare", before, after, name],
    queryFn: ({ signal }) => unwrap((api.POST as unknown as Post)("/api/v1/language/compare", { body: { before, after, ...(name === null ? {} : { name }) }, signal })) as Promise<TextComparison>,
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
