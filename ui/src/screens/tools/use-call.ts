// One call of a tool: a run of one step, which can be watched and cancelled.
import { useCallback, useEffect, useRef, useState } from "react";
import { api, unwrap } from "@/api/client";
import { stream } from "@/api/events";
import type { CallResult, RunView } from "@/api/types";
import { announce } from "@/app/announce";
import { isOver, stateWord } from "@/parts/State";

export interface CallState {
  phase: "idle" | "calling" | "done";
  since: number;
  runId: string | null;
  progress: string[];
  cancelling: boolean;
  result: CallResult | null;
  error: unknown;
}
export interface CallInput {
  tool: string;
  args: Record<string, unknown>;
  timeout: string;
  approved: boolean;
}

const IDLE: CallState = { phase: "idle", since: 0, runId: null, progress: [], cancelling: false, result: null, error: null };
const PROGRESS_MOST = 200;

/** A random id for the run of a call. `crypto.randomUUID` needs HTTPS or localhost; this does not. */
export function newRunId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

async function untilOver(id: string, first: CallResult): Promise<CallResult> {
  for (;;) {
    const run: RunView = await unwrap(api.GET("/api/v1/runs/{id}", { params: { path: { id }, query: { preview: true } } }));
    if (isOver(run.status) || run.status === "waiting")
      return { ...first, status: run.status, output: run.output, error: run.errors[0] ?? null, waiting_for: run.waiting_for ?? [], duration_ms: run.duration_ms };
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

export function useCall() {
  const [state, setState] = useState<CallState>(IDLE);
  const stop = useRef<() => void>(() => {});
  useEffect(() => () => stop.current(), []);

  const call = useCallback(
    async ({ tool, args, timeout, approved }: CallInput) => {
      const since = Date.now();
      stop.current();
      setState({ ...IDLE, phase: "calling", since });
      const runId = newRunId();
      let unwatch: (() => void) | null = null;
      const offs = [
        // The run exists from its first event on; then it can be followed and cancelled.
        stream.on("run", (run) => {
          if (run.run_id !== runId || unwatch) return;
          unwatch = stream.watch(runId, 0);
          setState((now) => ({ ...now, runId }));
        }),
        stream.on("step", (event) => {
          if (event.run_id !== runId || event.event !== "step_progress" || !event.detail) return;
          const text = event.detail;
          setState((now) => ({ ...now, progress: [...now.progress, text].slice(-PROGRESS_MOST) }));
        }),
      ];
      let live = true;
      stop.current = () => {
        live = false;
        for (const off of offs) off();
        unwatch?.();
      };
      try {
        const body = { arguments: args, frames: true, approved, run_id: runId, ...(timeout ? { timeout } : {}) };
        let result = await unwrap(api.POST("/api/v1/tools/{id}/call", { params: { path: { id: tool } }, body }));
        if (!isOver(result.status) && result.status !== "waiting") result = await untilOver(result.run_id, result);
        if (!live) return;
        setState((now) => ({ ...now, phase: "done", runId: result.run_id, result }));
        announce(`The call ended: ${stateWord(result.status)}`);
      } catch (error) {
        if (live) setState((now) => ({ ...now, phase: "done", error }));
      } finally {
        if (live) stop.current();
      }
    },
    [],
  );

  const cancel = useCallback(async (id: string) => {
    setState((now) => ({ ...now, cancelling: true }));
    try {
      await unwrap(api.POST("/api/v1/runs/{id}/cancel", { params: { path: { id } } }));
    } catch (error) {
      setState((now) => ({ ...now, cancelling: false, error }));
    }
  }, []);

  return { state, call, cancel };
}
