import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { queryClient } from "@/api/queries";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { Button } from "@/parts/Button";
import { Failure } from "@/parts/Failure";
import { Segmented } from "@/parts/Segmented";
import { NoModel } from "../../plans/NoModel";
import { noModel, type PlanDetails } from "../../plans/queries";
import type { BuilderContext } from "../model";
import "./proposal.css";
import { ProposalReview } from "./ProposalReview";
import { askPlan, deletePlan, wordsFor } from "./queries";

export interface ProposalPanelProps {
  context: BuilderContext;
  /** The composition's name, for the text that a proposal becomes. */
  composition: string | null;
  /** Puts another text in place of the current one, as one entry of the undo history. */
  onText: (text: string) => void;
  onClose: () => void;
}

/** A change or a new composition, asked for in words. Nothing of the text changes until a part is accepted. */
export function ProposalPanel({ context, composition, onText, onClose }: ProposalPanelProps) {
  const [words, setWords] = useState("");
  const [whole, setWhole] = useState<"change" | "new">(context.text.trim() === "" ? "new" : "change");
  const [details, setDetails] = useState<PlanDetails | null>(null);
  const stop = useRef<AbortController | null>(null);
  const ask = useMutation({
    mutationFn: () => {
      stop.current = new AbortController();
      return askPlan(wordsFor(words.trim(), whole === "change" ? context.text : null), stop.current.signal);
    },
    onSuccess: (plan) => {
      void queryClient.invalidateQueries({ queryKey: ["plans"] });
      announce("The model proposed a composition");
      setDetails(plan);
    },
  });
  useEffect(() => () => stop.current?.abort(), []);
  const reject = useMutation({
    mutationFn: (id: string) => deletePlan(id),
    onSuccess: () => {
      void queryClient.invalidateQueries({ queryKey: ["plans"] });
      announce("The proposal is deleted; the text is as it was");
      setDetails(null);
    },
  });
  const off = useDenied("compose") ?? (words.trim() ? null : "write what should happen first");
  const send = () => !off && !ask.isPending && ask.mutate();
  return (
    <section className="proposalpanel" aria-label="Change with words">
      <form onSubmit={(event) => (event.preventDefault(), send())}>
        <label htmlFor="proposal-words">What should happen?</label>
        <textarea
          id="proposal-words"
          className="input"
          rows={3}
          value={words}
          placeholder={whole === "change" ? "Also post the notes to the channel, and ask before that" : "Read every note in notes/, shorten each, and write one report"}
          onChange={(event) => setWords(event.target.value)}
          onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send()}
        />
        <div className="row">
          <Segmented mini label="What is asked for" value={whole} options={[{ value: "change", label: "Change this" }, { value: "new", label: "New composition" }]} onChange={setWhole} />
          <span className="grow" />
          {ask.isPending && <Button icon="i-stop" onClick={() => stop.current?.abort()}>Stop</Button>}
          <Button kind="primary" icon="i-words" type="submit" off={off} busy={ask.isPending}>{details ? "Propose again" : "Propose"}</Button>
          <Button onClick={onClose}>Close</Button>
        </div>
        {whole === "change" && <p className="muted">The model gets the text of this composition with your words.</p>}
      </form>
      {ask.isError && ask.error.name !== "AbortError" && (noModel(ask.error) ? <NoModel /> : <Failure error={ask.error} />)}
      {reject.error && <Failure error={reject.error} />}
      {details && <ProposalReview key={details.plan_id} context={context} composition={composition} details={details} onText={onText} rejecting={reject.isPending} onReject={() => reject.mutate(details.plan_id)} />}
    </section>
  );
}
