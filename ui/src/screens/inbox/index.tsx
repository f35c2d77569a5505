import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { questionsQuery } from "@/api/queries";
import type { Question } from "@/api/types";
import { announce } from "@/app/announce";
import { Screen } from "@/app/Screen";
import { useShortcuts } from "@/app/shortcuts";
import { plural } from "@/lib/format";
import { useNow } from "@/lib/use-now";
import { Command, Empty } from "@/parts/Empty";
import { Failure } from "@/parts/Failure";
import { Skeleton } from "@/parts/Skeleton";
import { useAnswered } from "./send-answer";
import { Detail, Gone } from "./Detail";
import "./inbox.css";
import { List } from "./List";
import { keyOf } from "./words";

export default function Inbox() {
  const { question: wanted } = useSearch({ from: "/inbox" });
  const query = useQuery(questionsQuery);
  const answered = useAnswered();
  const navigate = useNavigate();
  const questions = useMemo(() => [...(query.data?.questions ?? [])].sort((a, b) => b.asked_at.localeCompare(a.asked_at)), [query.data]);
  const now = useNow(questions.length > 0);
  const go = useCallback((key: string | undefined, replace = false) => void navigate({ to: "/inbox", search: { question: key }, replace }), [navigate]);
  const found = questions.findIndex((one) => keyOf(one) === wanted);
  const shown = useShown(questions[found], wanted);
  // The first question stays open when newer ones arrive: what is on screen never changes by itself.
  const first = questions[0] && keyOf(questions[0]);
  useEffect(() => {
    if (!wanted && first) go(first, true);
  }, [wanted, first, go]);
  useArrivals(questions.length, query.isSuccess);
  const move = (by: number) => {
    const next = questions[found < 0 ? 0 : Math.max(0, Math.min(questions.length - 1, found + by))];
    if (next) go(keyOf(next));
  };
  useShortcuts({
    j: () => move(1),
    k: () => move(-1),
    a: () => focusOn("allow"),
    d: () => focusOn("deny"),
  });
  const done = answered.find((one) => wanted !== undefined && keyOf(one.question) === wanted);
  const next = questions.find((one) => keyOf(one) !== wanted);
  const nothing = query.isSuccess && questions.length === 0 && !wanted;
  return (
    <Screen title="Inbox" about="Questions from runs that wait for a person">
      {query.isPending ? (
        <Skeleton label="Loading questions" />
      ) : query.isError ? (
        <div className="pad"><Failure error={query.error} retry={() => void query.refetch()} /></div>
      ) : nothing && answered.length === 0 ? (
        <NoQuestions />
      ) : (
        <div className="inbox">
          <List questions={questions} answered={answered} current={wanted} now={now} />
          {found >= 0 && shown ? (
            <Detail key={wanted} data={shown} now={now} />
          ) : wanted ? (
            <Gone data={shown} done={done} next={next && keyOf(next)} onNext={go} />
          ) : (
            <Empty title="No question waits"><p>You answered all of them.</p></Empty>
          )}
        </div>
      )}
    </Screen>
  );
}

/** The question on screen, kept after it is answered elsewhere. */
function useShown(now: Question | undefined, key: string | undefined): Question | undefined {
  const last = useRef<Question | undefined>(undefined);
  if (now) last.current = now;
  return last.current && keyOf(last.current) === key ? last.current : undefined;
}

function useArrivals(count: number, ready: boolean): void {
  const before = useRef<number | null>(null);
  useEffect(() => {
    if (!ready) return;
    if (before.current !== null && count > before.current) announce(`A new question: ${plural(count, "question waits", "questions wait")}`);
    before.current = count;
  }, [count, ready]);
}

function focusOn(which: "allow" | "deny"): void {
  document.querySelector<HTMLElement>(`[data-answer=${which}]`)?.focus();
}

function NoQuestions() {
  return (
    <Empty title="No question waits">
      <p>A run asks here before it calls a tool that destroys something, at an <code>approve</code> step, and when the answer of a call was lost.</p>
      <p>Try it: this step makes a run wait until somebody answers.</p>
      <Command text={'- { id: ask, approve: { message: "publish the report?" } }'} />
      <p className="muted">Questions appear at once, and the tab’s title counts them.</p>
    </Empty>
  );
}
