import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api, unwrap } from "@/api/client";
import { queryClient } from "@/api/queries";
import type { RunView } from "@/api/types";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { isOver } from "@/parts/State";

const ASYNC = { Prefer: "respond-async" };

export interface RunActions {
  cancel: Action;
  resume: Action;
  rollback: Action;
  rerun: { mutate: (body: { from?: string; input?: Record<string, unknown> }) => void; busy: boolean; error: unknown; off: string | null };
  error: unknown;
}
export interface Action {
  run: () => void;
  busy: boolean;
  /** Why it cannot be done now. */
  off: string | null;
  /** Whether it makes sense for a run in this state. */
  offered: boolean;
}

export function useRunActions(run: RunView): RunActions {
  const id = run.run_id;
  const denied = useDenied("run");
  const navigate = useNavigate();
  const params = { path: { id }, header: ASYNC };
  const refresh = () => void queryClient.invalidateQueries({ queryKey: ["run", id] });
  const done = (word: string) => () => {
    announce(word);
    refresh();
  };
  const cancel = useMutation({ mutationFn: () => unwrap(api.POST("/api/v1/runs/{id}/cancel", { params })), onSuccess: done("Cancelling") });
  const resume = useMutation({ mutationFn: () => unwrap(api.POST("/api/v1/runs/{id}/resume", { params, body: {} })), onSuccess: done("Resumed") });
  const rollback = useMutation({ mutationFn: () => unwrap(api.POST("/api/v1/runs/{id}/rollback", { params })), onSuccess: done("Rolling back") });
  const rerun = useMutation({
    mutationFn: (body: { from?: string; input?: Record<string, unknown> }) => unwrap(api.POST("/api/v1/runs/{id}/rerun", { params, body })),
    onSuccess: (result) => void navigate({ to: "/runs/$id", params: { id: result.run_id } }),
  });
  const over = isOver(run.status);
  const stopped = !!run.interrupted || !!run.set_aside;
  return {
    cancel: { run: () => cancel.mutate(), busy: cancel.isPending, off: over ? "the run is over" : denied, offered: true },
    resume: { run: () => resume.mutate(), busy: resume.isPending, off: denied, offered: stopped && !over },
    rollback: { run: () => rollback.mutate(), busy: rollback.isPending, off: rollbackOff(run, over) ?? denied, offered: true },
    rerun: { mutate: rerun.mutate, busy: rerun.isPending, error: rerun.error, off: denied },
    error: cancel.error ?? resume.error ?? rollback.error,
  };
}

function rollbackOff(run: RunView, over: boolean): string | null {
  if (!over && !run.interrupted) return "cancel the run first";
  if (run.status === "rolled_back") return "it was rolled back";
  if (run.status === "dry_run") return "a dry run changed nothing";
  return null;
}
