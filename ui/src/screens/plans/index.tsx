import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { api, unwrap } from "@/api/client";
import { queryClient } from "@/api/queries";
import { announce } from "@/app/announce";
import { Screen } from "@/app/Screen";
import { useDenied } from "@/app/session";
import { plural } from "@/lib/format";
import { Button } from "@/parts/Button";
import { Empty } from "@/parts/Empty";
import { Failure } from "@/parts/Failure";
import "@/styles/halves.css";
import { NoModel } from "./NoModel";
import "./plans.css";
import { Proposal } from "./Proposal";
import { noModel, plansQuery, type PlanOffer } from "./queries";
import type { PlansSearch } from "./search";
import { StoredPlans } from "./StoredPlans";

interface Ask {
  query: string;
  /** Another version for the same request. */
  request_id?: string;
  /** A plan that succeeded before. */
  use?: string;
  fresh?: boolean;
}

/** Asking can be stopped: the server then stops asking the model. */
function useAsk(onPlan: (id: string) => void) {
  const stop = useRef<AbortController | null>(null);
  const ask = useMutation({
    mutationFn: (body: Ask) => {
      stop.current = new AbortController();
      return unwrap(api.POST("/api/v1/plans/ask", { body: { fresh: false, ...body }, signal: stop.current.signal }));
    },
    onSuccess: (details) => {
      queryClient.setQueryData(["plan", details.plan_id], details);
      void queryClient.invalidateQueries({ queryKey: ["plans"] });
      announce("The model proposed a plan");
      onPlan(details.plan_id);
    },
  });
  useEffect(() => () => stop.current?.abort(), []);
  return { ask, stop: () => stop.current?.abort() };
}

export default function Plans() {
  const search = useSearch({ from: "/plans" });
  const navigate = useNavigate({ from: "/plans" });
  const set = (change: Partial<PlansSearch>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true });
  const stored = useInfiniteQuery(plansQuery(search.state));
  const plans = stored.data?.pages.flatMap((page) => page.plans) ?? [];
  const { ask, stop } = useAsk((plan) => set({ plan }));
  const again = (body: Ask) => ask.mutate(body);
  return (
    <Screen title="Plan from words" about={stored.data && plural(plans.length, "stored plan")}>
      <div className="halves">
        <div className="half ask">
          <AskForm words={search.q ?? ""} busy={ask.isPending} onAsk={(query) => (set({ q: query, plan: undefined }), again({ query }))} onStop={stop} />
          <StoredPlans query={stored} plans={plans} selected={search.plan} state={search.state} onSelect={(plan) => set({ plan })} onState={(state) => set({ state })} />
        </div>
        <div className="half">
          {ask.isError && ask.error.name !== "AbortError" && (
            <div className="pad">
              {noModel(ask.error) ? <NoModel /> : <Failure error={ask.error} />}
              <Offers offers={offersOf(ask.error)} onUse={(offer) => again({ query: ask.variables?.query ?? offer.query, use: offer.plan_id })} />
            </div>
          )}
          {search.plan ? (
            <Proposal key={search.plan} id={search.plan} pane={search.pane ?? "graph"} onPane={(pane) => set({ pane })} onGone={() => set({ plan: undefined })} onAgain={(body) => again(body)} asking={ask.isPending} />
          ) : (
            !ask.isError && <How busy={ask.isPending} />
          )}
        </div>
      </div>
    </Screen>
  );
}

function offersOf(error: unknown): PlanOffer[] {
  const problem = (error as { problem?: { used_before?: PlanOffer[] } }).problem;
  return problem?.used_before ?? [];
}

export function Offers({ offers, onUse }: { offers: PlanOffer[]; onUse: (offer: PlanOffer) => void }) {
  if (offers.length === 0) return null;
  return (
    <div className="offers">
      <h3>Succeeded before for similar words</h3>
      {offers.map((offer) => (
        <div key={offer.plan_id} className="row">
          <Button size="small" onClick={() => onUse(offer)}>Use</Button>
          <bdi className="ell">{offer.query}</bdi>
        </div>
      ))}
    </div>
  );
}

function How({ busy }: { busy: boolean }) {
  return busy ? (
    <Empty title="The model is asked">
      <p>Segue checks its answer against the tools that exist. No tool is called.</p>
    </Empty>
  ) : (
    <Empty title="Say what should happen">
      <p>The model proposes a plan. Segue checks it against your tools and shows each call, its effect, and what is unknown.</p>
      <p>Nothing runs until you accept the plan. A rejected plan is deleted.</p>
    </Empty>
  );
}

function AskForm({ words, busy, onAsk, onStop }: { words: string; busy: boolean; onAsk: (query: string) => void; onStop: () => void }) {
  const [text, setText] = useState(words);
  const denied = useDenied("compose");
  const off = denied ?? (text.trim() ? null : "write what should happen first");
  const send = () => !off && !busy && onAsk(text.trim());
  return (
    <form
      className="askform"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <label htmlFor="ask-words">What should happen?</label>
      <textarea
        id="ask-words"
        data-search
        className="input"
        rows={4}
        value={text}
        placeholder="Read every note in notes/, shorten each, and write one report"
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
        }}
      />
      <div className="row">
        <Button kind="primary" icon="i-words" type="submit" off={off} busy={busy} keys="Ctrl ↵">Propose a plan</Button>
        {busy && <Button icon="i-stop" onClick={onStop}>Stop</Button>}
      </div>
    </form>
  );
}
