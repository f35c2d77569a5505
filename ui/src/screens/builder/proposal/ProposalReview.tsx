import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useDenied } from "@/app/session";
import { plural } from "@/lib/format";
import { withHunks } from "@/lib/line-diff";
import { plainText } from "@/lib/safe-text";
import { Button } from "@/parts/Button";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import { unknowns, type PlanDetails } from "../../plans/queries";
import type { BuilderContext } from "../model";
import { stepsQuery, type StepChange } from "../versions/requests";
import { useCompared, VersionDiff } from "../versions/VersionDiff";
import { proposalTextQuery, reasoning } from "./queries";
import { stepEdits, type Accepting, type Sides } from "./step-edits";

interface Props {
  context: BuilderContext;
  composition: string | null;
  details: PlanDetails;
  onText: (text: string) => void;
  rejecting: boolean;
  onReject: () => void;
}

/** A proposal beside the text: reasons, unknowns, and the differences, each of which can be taken alone. */
export function ProposalReview({ context, composition, details, onText, rejecting, onReject }: Props) {
  const text = useQuery(proposalTextQuery(details.plan_id, composition));
  const denied = useDenied("write");
  if (text.isPending) return <Skeleton rows={4} label="Loading the proposal" />;
  if (text.isError) return <Failure error={text.error} retry={() => void text.refetch()} />;
  const same = text.data === context.text;
  return (
    <section className="proposalreview" aria-label="Proposal">
      <Reasons details={details} />
      <div className="row">
        <span className="muted">{same ? "Everything of it is in the text." : "Nothing is taken until you accept it."}</span>
        <span className="grow" />
        <Button kind="danger" icon="i-x" off={denied} busy={rejecting} onClick={onReject}>Reject</Button>
        <Button kind="primary" off={same ? "it is in the text already" : null} onClick={() => onText(text.data)}>Accept all</Button>
      </div>
      <Differences context={context} proposal={text.data} onText={onText} />
    </section>
  );
}

function Reasons({ details }: { details: PlanDetails }) {
  const why = reasoning(details);
  const all = unknowns(details);
  return (
    <>
      {why && <p><b>Why: </b><SafeText text={why} most={4000} /></p>}
      {all.length === 0 ? (
        <p className="st s-success"><Icon name="s-success" />Every tool, effect and rollback of it is known.</p>
      ) : (
        <ul className="unknowns" aria-label="What to know before accepting">
          {all.map((one, i) => <li key={i} className="s-waiting"><Icon name="i-warn" label="warning" /><SafeText text={one} most={1000} /></li>)}
        </ul>
      )}
    </>
  );
}

function Differences({ context, proposal, onText }: { context: BuilderContext; proposal: string; onText: (text: string) => void }) {
  const { text, name } = context;
  const compared = useCompared(text, proposal);
  const proposed = useQuery(stepsQuery(proposal, name));
  const [busy, setBusy] = useState<string | null>(null);
  const [refused, setRefused] = useState<string | null>(null);
  const sides: Sides | null = proposed.data && context.analysis ? { current: { text, steps: context.analysis.steps }, proposed: { text: proposal, steps: proposed.data } } : null;
  const accept = async (change: StepChange, edits: Extract<Accepting, { ok: true }>["edits"]) => {
    setBusy(change.step);
    for (const edit of edits) {
      const why = await context.edit(edit);
      setRefused(why);
      if (why !== null) break;
    }
    setBusy(null);
  };
  return (
    <>
      {refused && <div className="help bad" role="alert"><Icon name="s-failed" small /><SafeText text={refused} most={600} /></div>}
      <VersionDiff
        before={{ label: "now", text }}
        after={{ label: "proposal", text: proposal }}
        name={name}
        hunk={(i) => <Button size="small" aria-label={`Accept change ${i + 1}`} onClick={() => onText(withHunks(compared.before, compared.after, compared.hunks, (one) => one === i))}>Accept</Button>}
        step={(change) => {
          const accepting = sides && stepEdits(change, sides);
          const off = !accepting ? "the proposal is still read" : accepting.ok ? null : accepting.why;
          const about = accepting?.ok && accepting.edits.length > 1 ? plural(accepting.edits.length, "edit") : undefined;
          return <Button size="small" aria-label={`Accept: ${plainText(change.step)} ${change.change}`} title={about} off={off} busy={busy === change.step} onClick={() => accepting?.ok && void accept(change, accepting.edits)}>Accept</Button>;
        }}
      />
    </>
  );
}
