import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { api, unwrap } from "@/api/client";
import { queryClient } from "@/api/queries";
import type { PlanView } from "@/api/types";
import { announce } from "@/app/announce";
import { useCommands } from "@/app/commands";
import { useDenied } from "@/app/session";
import { relative, shortId } from "@/lib/format";
import { Button } from "@/parts/Button";
import { CopyButton } from "@/parts/Copy";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { EffectMark } from "@/parts/Marks";
import { PlanPanes, type PlanPane } from "@/parts/PlanPanes";
import { SafeText } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import { Offers } from ".";
import { planQuery, planTextQuery, unknowns, type PlanDetails } from "./queries";
import { PlanStateMark } from "./StoredPlans";

interface Props {
  id: string;
  pane: PlanPane;
  onPane: (pane: PlanPane) => void;
  /** The plan was rejected: nothing of it is left. */
  onGone: () => void;
  onAgain: (body: { query: string; request_id?: string; use?: string; fresh?: boolean }) => void;
  asking: boolean;
}

/** A plan that a model proposed. It runs only when it is accepted; rejecting deletes it. */
export function Proposal({ id, pane, onPane, onGone, onAgain, asking }: Props) {
  const plan = useQuery(planQuery(id));
  const text = useQuery(planTextQuery(id));
  if (plan.isPending) return <Skeleton label="Loading the plan" />;
  if (plan.isError) return <div className="pad"><Failure error={plan.error} retry={() => void plan.refetch()} /></div>;
  const details = plan.data;
  const checked = details.checked as PlanView | null | undefined;
  return (
    <section className="proposal" aria-label="Proposed plan">
      <Head details={details} onGone={onGone} onAgain={onAgain} asking={asking} />
      {checked ? (
        <PlanPanes plan={checked} source={text.data ? { text: text.data, format: "yaml" } : null} pane={pane} onPane={onPane} />
      ) : (
        <pre className="code whole pad" tabIndex={0}><SafeText text={JSON.stringify(details.plan, null, 2)} most={100_000} /></pre>
      )}
    </section>
  );
}

function usePlanActions(details: PlanDetails, onGone: () => void) {
  const navigate = useNavigate();
  const refresh = () => {
    for (const key of [["plans"], ["plan", details.plan_id]]) void queryClient.invalidateQueries({ queryKey: key });
  };
  const accept = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/plans/{id}/execute", {
          params: { path: { id: details.plan_id }, header: { Prefer: "respond-async" } },
          body: { again: details.state !== "pending" },
        }),
      ),
    onSuccess: (result) => {
      refresh();
      void navigate({ to: "/runs/$id", params: { id: result.run_id } });
    },
  });
  const reject = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/plans/{id}", { params: { path: { id: details.plan_id } } })),
    onSuccess: () => {
      queryClient.removeQueries({ queryKey: ["plan", details.plan_id] });
      void queryClient.invalidateQueries({ queryKey: ["plans"] });
      announce("The plan is deleted");
      onGone();
    },
  });
  return { accept, reject };
}

function Head({ details, onGone, onAgain, asking }: { details: PlanDetails } & Pick<Props, "onGone" | "onAgain" | "asking">) {
  const { accept, reject } = usePlanActions(details, onGone);
  const pending = details.state === "pending";
  const fits = !!details.checked;
  const acceptOff = useDenied("run") ?? useDeniedCompose() ?? (fits ? null : "it does not fit the tools that exist now") ?? (details.state === "in-progress" ? "a run is executing it" : null);
  const rejectOff = useDenied("write");
  useCommands([
    { id: "accept-plan", group: "This plan", label: pending ? "Accept and run" : "Run again", icon: "i-play", off: acceptOff, run: () => accept.mutate() },
    { id: "reject-plan", group: "This plan", label: pending ? "Reject" : "Delete", icon: "i-x", off: rejectOff, run: () => reject.mutate() },
  ]);
  return (
    <div className="half-h">
      <div className="row">
        <PlanStateMark state={details.state} />
        <h2 className="ell"><SafeText text={details.query} most={200} /></h2>
        {details.checked && <EffectMark effect={(details.checked as PlanView).effect} />}
        <span className="grow" />
        <CopyButton text={details.plan_id} label="Copy the plan's id" size={undefined} />
        <Link to="/edit" search={{ from: `plan:${details.plan_id}` }} className="btn"><Icon name="i-comp" />Edit as a composition</Link>
        <Button icon="i-again" off={asking ? "the model is being asked" : null} onClick={() => onAgain({ query: details.query, request_id: details.request_id, fresh: true })}>Another version</Button>
        <Button kind="danger" icon="i-x" off={rejectOff} busy={reject.isPending} onClick={() => reject.mutate()}>{pending ? "Reject" : "Delete"}</Button>
        <Button kind="primary" icon="i-play" off={acceptOff} busy={accept.isPending} onClick={() => accept.mutate()}>{pending ? "Accept and run" : "Run again"}</Button>
      </div>
      {(accept.error ?? reject.error) && <Failure error={accept.error ?? reject.error} />}
      {pending && <p className="t2">A proposal: nothing was called. It runs when you accept it, and “Reject” deletes it.</p>}
      <Unknowns details={details} />
      <About details={details} />
      <Offers offers={details.used_before ?? []} onUse={(offer) => onAgain({ query: details.query, use: offer.plan_id })} />
    </div>
  );
}

const useDeniedCompose = () => useDenied("compose");

function Unknowns({ details }: { details: PlanDetails }) {
  const all = unknowns(details);
  if (all.length === 0) return <p className="st s-success"><Icon name="s-success" />Every tool, effect and rollback of it is known.</p>;
  return (
    <ul className="unknowns" aria-label="What to know before accepting">
      {all.map((text, i) => (
        <li key={i} className="s-waiting">
          <Icon name="i-warn" label="warning" />
          <SafeText text={text} />
        </li>
      ))}
    </ul>
  );
}

function About({ details }: { details: PlanDetails }) {
  const { origin } = details;
  return (
    <dl className="facts">
      <div><dt>Made</dt><dd>{relative(details.created_at)}{"model" in origin ? <> by <SafeText text={origin.model.model} most={80} /></> : " from an earlier plan"}</dd></div>
      {"model" in origin && <div><dt>Answers</dt><dd className="num">{origin.model.rounds}</dd></div>}
      <div><dt>Version</dt><dd className="num">{details.version} of {details.versions.length}</dd></div>
      {details.run_id && (
        <div>
          <dt>Run</dt>
          <dd><Link to="/runs/$id" params={{ id: details.run_id }}>{shortId(details.run_id)}</Link></dd>
        </div>
      )}
    </dl>
  );
}
