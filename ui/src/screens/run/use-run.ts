import { useQueries, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import { api, unwrap } from "@/api/client";
import { stream } from "@/api/events";
import { runPlanQuery, runQuery } from "@/api/queries";
import type { PlanStepView, StepPage, StepStatus, StepView } from "@/api/types";
import { hasBodies, isLoop } from "@/graph/layout";
import { itemOf, planPath } from "@/lib/path";
import { isOver } from "@/parts/State";
import { PREVIEW_ITEMS, buildModel, defaultItem, findPlanStep, type RunModel } from "./model";

/** Statuses that a strip has to know of items beyond the preview. */
const NOTABLE: StepStatus[] = ["failed", "running", "in_doubt", "rollback_failed", "cancelled"];

export const loopPageQuery = (id: string, path: string) => ({
  queryKey: ["run-steps", id, path, "notable"],
  queryFn: () => unwrap(api.GET("/api/v1/runs/{id}/steps", { params: { path: { id }, query: { parent: path, deep: true, status: NOTABLE, limit: 500 } } })),
});

export const stepsPageQuery = (id: string, parent: string, offset: number, limit: number) => ({
  queryKey: ["run-steps", id, parent, offset, limit],
  queryFn: () => unwrap(api.GET("/api/v1/runs/{id}/steps", { params: { path: { id }, query: { parent, offset, limit } } })),
});

export interface Missing {
  parent: string;
  item: number | null;
}

/**
 * What has to be asked to show a path in an item that the preview leaves out: the containers on the way, one by
 * one, and those inside the item.
 */
export function missingParents(path: string | null, plan: PlanStepView[]): Missing[] {
  if (!path || ![...path.matchAll(/\[(\d+)\]/g)].some((match) => Number(match[1]) >= PREVIEW_ITEMS)) return [];
  const out: Missing[] = [];
  let prefix = "";
  let outside = false;
  for (const part of path.split("/")) {
    const match = /^(.*)\[(\d+)\]$/.exec(part);
    const name = match?.[1] ?? part;
    const item = match ? Number(match[2]) : null;
    outside ||= item !== null && item >= PREVIEW_ITEMS;
    const step = findPlanStep(plan, planPath(prefix + name));
    if (outside && step && hasBodies(step)) out.push({ parent: prefix + name, item });
    if (outside && item !== null && step) for (const body of step.bodies ?? []) out.push(...inside(body.steps, `${prefix}${part}/`));
    prefix += `${part}/`;
  }
  return out.filter((one, i) => out.findIndex((other) => other.parent === one.parent) === i);
}

function inside(steps: PlanStepView[], prefix: string): Missing[] {
  return steps.filter((step) => hasBodies(step) && !isLoop(step)).flatMap((step) => [
    { parent: prefix + step.id, item: null },
    ...(step.bodies ?? []).flatMap((body) => inside(body.steps, `${prefix}${step.id}/`)),
  ]);
}

export interface RunData {
  model: RunModel | null;
  error: unknown;
  retry: () => void;
}

/** Steps of shown items that the preview leaves out. */
function useMissing(id: string, model: RunModel | null, selected: string | null): StepView[] {
  const missing = useMemo(() => {
    if (!model) return [];
    const shown = [...model.loops.values()].filter((loop) => !selected || itemOf(selected, loop.path) === null).map((loop) => `${loop.path}[${defaultItem(loop)}]`);
    return [selected, ...shown].flatMap((path) => missingParents(path, model.plan.steps));
  }, [model, selected]);
  return useQueries({
    queries: missing.map(({ parent, item }) => {
      const each = findPlanStep(model?.plan.steps ?? [], planPath(parent))?.bodies?.[0]?.steps.length ?? 1;
      return stepsPageQuery(id, parent, (item ?? 0) * each, item === null ? 200 : each);
    }),
    combine: (all) => all.flatMap((one): StepView[] => one.data?.steps ?? []),
  });
}

export function useRun(id: string, selected: string | null, enabled = true): RunData {
  const run = useQuery({ ...runQuery(id), enabled });
  const plan = useQuery({ ...runPlanQuery(id), enabled });
  const live = run.data !== undefined && !isOver(run.data.status);
  const entries = useRef(0);
  entries.current = run.data?.entries ?? 0;
  useEffect(() => (live ? stream.watch(id, entries.current) : undefined), [id, live]);
  const base = useMemo(() => (run.data && plan.data ? buildModel(run.data, plan.data) : null), [run.data, plan.data]);
  const large = useMemo(() => [...(base?.loops.values() ?? [])].filter((loop) => loop.total >= PREVIEW_ITEMS).map((loop) => loop.path), [base]);
  const pages = useQueries({ queries: large.map((path) => loopPageQuery(id, path)), combine: (all) => all.map((one) => one.data) });
  const known = useMemo(() => {
    const out = new Map<string, StepPage>();
    large.forEach((path, i) => {
      const page = pages[i];
      if (page) out.set(path, page);
    });
    return out;
  }, [large, pages]);
  const wide = useMemo(() => (run.data && plan.data && known.size > 0 ? buildModel(run.data, plan.data, known) : base), [base, run.data, plan.data, known]);
  const extra = useMissing(id, wide, selected);
  const model = useMemo(() => (run.data && plan.data && extra.length > 0 ? buildModel(run.data, plan.data, known, extra) : wide), [wide, run.data, plan.data, known, extra]);
  return {
    model,
    error: run.error ?? plan.error,
    retry: () => {
      void run.refetch();
      void plan.refetch();
    },
  };
}
