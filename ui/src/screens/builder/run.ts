// Runs of the text that is being edited.
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { api, unwrap } from "@/api/client";
import type { RunPart } from "@/api/types";
import type { components } from "@/api/schema";
import type { Look } from "@/graph/looks";
import { announce } from "@/app/announce";
import { planPath } from "@/lib/path";
import { stateWord } from "@/parts/State";
import { looksOf } from "../run/looks";
import { railOf } from "../run/rollback";
import { wholeInput } from "../run/run-commands";
import { useRun } from "../run/use-run";
import { useBuilder, useShown, type Builder } from "./builder";
import { usePins } from "./pins";

type Result = components["schemas"]["CompositionResult"];

export interface Ask {
  input: Record<string, unknown>;
  dry: boolean;
  /** A part of it: to a step, or only a step with the values of a run. */
  part?: { until: string } | { only: string; run: string };
  /** Outputs in place of calls. */
  pinned?: ReadonlyMap<string, unknown>;
}

/** A saved text runs by its name; an unsaved one goes along, which needs the right to compose. */
export function requestOf(builder: Builder, { input, dry, part, pinned }: Ask): components["schemas"]["CompositionRequest"] {
  const { text, dirty } = builder.document.snapshot();
  const { analysis } = builder.analyzer.snapshot();
  const { file } = builder.snapshot();
  const name = !dirty && file.path ? analysis?.plan?.name : undefined;
  const mocks = pinned && pinned.size > 0 ? { mocks: Object.fromEntries([...pinned].map(([step, returns]) => [step, { returns }])) } : {};
  // A step that runs alone has the input of the run whose values it takes.
  const given = part && "only" in part ? {} : { input: input as Record<string, never> };
  return { ...(name ? { name } : { composition: text }), ...given, ...part, ...mocks, options: { dry_run: dry, approved: false } };
}

export function useStart(onStarted: (result: Result, ask: Ask) => void) {
  const builder = useBuilder();
  return useMutation({
    mutationFn: (ask: Ask) => unwrap(api.POST("/api/v1/compositions/execute", { params: ask.dry ? {} : { header: { Prefer: "respond-async" } }, body: requestOf(builder, ask) })),
    onSuccess: (result, ask) => {
      announce(ask.dry ? `Dry run: ${stateWord(result.status)}` : "The run started");
      if (!ask.dry) builder.showRun(result.run_id);
      onStarted(result, ask);
    },
  });
}

/** The server finds runs by a part of their name: the newest of them may be of another composition. */
const LOOKED_AT = 50;

/** The last run of this composition: its values are what previews work with until there is a newer one. */
export function useLastRun(): void {
  const builder = useBuilder();
  const name = useCompositionName();
  const last = useQuery({
    queryKey: ["builder-last-run", name],
    queryFn: () => unwrap(api.GET("/api/v1/runs", { params: { query: { name: name ?? "", limit: LOOKED_AT } } })),
    enabled: name !== null,
  });
  const id = last.data?.runs.find((one) => one.name === name)?.run_id ?? null;
  useEffect(() => {
    if (id && builder.snapshot().run === null) builder.showRun(id);
  }, [builder, id]);
}

/** The name in the text, as long as it has been read. */
export function useCompositionName(): string | null {
  const builder = useBuilder();
  const [name, setName] = useState<string | null>(null);
  useEffect(
    () =>
      builder.analyzer.subscribe(() => {
        const next = builder.analyzer.snapshot().analysis?.plan?.name;
        if (next) setName(next);
      }),
    [builder],
  );
  return name;
}

export interface ShownRun {
  id: string;
  status: Result["status"];
  /** What of the composition it performed, where it is not the whole one. */
  part: RunPart | null;
  looks: ReadonlyMap<string, Look>;
  /** Outputs by the step's path in the plan, as far as the preview has them. */
  output: (path: string) => unknown;
}

/** The states of the shown run by step of the plan. */
export function useShownRun(): ShownRun | null {
  const id = useShown((shown) => shown.run);
  const { model } = useRun(id ?? "", null, id !== null);
  return useMemo(() => {
    if (!id || !model) return null;
    const { looks } = looksOf(model, null, railOf(model), Date.now());
    // Of a step inside a loop: what its first item gave.
    const outputs = new Map<string, unknown>();
    for (const step of model.byPath.values()) {
      const path = planPath(step.id);
      if (step.output !== null && step.output !== undefined && !outputs.has(path)) outputs.set(path, step.output);
    }
    return { id, status: model.run.status, part: model.run.part ?? null, looks, output: (path) => outputs.get(path) };
  }, [id, model]);
}

/** The input that the last run had, or the recorded one, so that nobody types it twice. */
export function useLastInput(): Record<string, unknown> | undefined {
  const recorded = usePins()?.input;
  const id = useShown((shown) => shown.run);
  const { model } = useRun(id ?? "", null, id !== null);
  const run = model?.run;
  const input = useQuery({ queryKey: ["builder-input", id], queryFn: () => (run ? wholeInput(run) : null), enabled: run !== undefined, staleTime: Infinity });
  const value = input.data;
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : (recorded ?? undefined);
}
