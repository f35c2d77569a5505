// Sending an answer, and what was answered in this tab.
import { useSyncExternalStore } from "react";
import { api, unwrap } from "@/api/client";
import { queryClient, questionsQuery } from "@/api/queries";
import type { Question } from "@/api/types";
import { same } from "@/parts/form/schema";
import { keyOf } from "./words";

export class ChangedQuestion extends Error {}

/** The list is read again first: a yes is only for the question that is on screen. */
export async function sendAnswer(shown: Question, yes: boolean, data: unknown): Promise<void> {
  const fresh = await queryClient.fetchQuery({ ...questionsQuery, staleTime: 0 });
  const now = fresh.questions.find((one) => keyOf(one) === keyOf(shown));
  if (!now) throw new ChangedQuestion("This question is no longer open: somebody answered it, it expired, or the run ended.");
  if (!same(now.question, shown.question)) throw new ChangedQuestion("The question has changed since you opened it. Read it again, then answer.");
  const params = { path: { id: shown.run_id }, header: { Prefer: "respond-async" } };
  const { step } = shown.question;
  if (shown.question.kind === "doubt")
    await unwrap(api.POST("/api/v1/runs/{id}/resume", { params, body: { assume: yes ? "done" : "failed", step, ...(yes && data !== undefined ? { value: data } : {}) } }));
  else await unwrap(api.POST("/api/v1/runs/{id}/approve", { params, body: { approved: yes, step, ...(yes && data !== undefined ? { data } : {}) } }));
  remember({ question: shown, yes, at: new Date().toISOString() });
  void queryClient.invalidateQueries({ queryKey: ["questions"] });
  void queryClient.invalidateQueries({ queryKey: ["run", shown.run_id] });
}

export interface Answered {
  question: Question;
  yes: boolean;
  at: string;
}
let answered: Answered[] = [];
const watchers = new Set<() => void>();
function remember(one: Answered): void {
  answered = [one, ...answered].slice(0, 20);
  for (const watcher of watchers) watcher();
}
export function useAnswered(): Answered[] {
  return useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => answered,
  );
}
