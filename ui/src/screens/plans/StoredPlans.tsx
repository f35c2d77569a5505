import type { UseInfiniteQueryResult } from "@tanstack/react-query";
import { relative } from "@/lib/format";
import { Failure } from "@/parts/Failure";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { Skeleton } from "@/parts/Skeleton";
import { State, type AnyState } from "@/parts/State";
import { VirtualList } from "@/parts/VirtualList";
import type { PlannedView } from "./queries";
import { STATES, type PlansSearch } from "./search";

const WORDS: Record<(typeof STATES)[number], [AnyState, string]> = {
  pending: ["pending", "Proposed"],
  "in-progress": ["running", "Running"],
  completed: ["success", "Succeeded"],
  failed: ["failed", "Failed"],
};

export function PlanStateMark({ state }: { state: PlannedView["state"] }) {
  const [icon, word] = WORDS[state];
  return <State state={icon}>{word}</State>;
}

interface Props {
  query: Pick<UseInfiniteQueryResult, "isPending" | "error" | "hasNextPage" | "isFetchingNextPage" | "fetchNextPage" | "refetch">;
  plans: PlannedView[];
  selected: string | undefined;
  state: PlansSearch["state"];
  onSelect: (id: string) => void;
  onState: (state: PlansSearch["state"]) => void;
}

export function StoredPlans({ query, plans, selected, state, onSelect, onState }: Props) {
  const filter = [{ value: "all" as const, label: "All" }, ...STATES.map((value) => ({ value, label: WORDS[value][1] }))];
  return (
    <>
      <div className="stored-h">
        <h2>Stored plans</h2>
        <Segmented mini label="State" value={state ?? "all"} options={filter} onChange={(value) => onState(value === "all" ? undefined : value)} />
      </div>
      {query.isPending ? (
        <Skeleton rows={4} label="Loading plans" />
      ) : query.error ? (
        <div className="pad"><Failure error={query.error} retry={() => void query.refetch()} /></div>
      ) : plans.length === 0 ? (
        <p className="pad muted">{state ? "No plan is in this state." : "No plan is stored."}</p>
      ) : (
        <VirtualList
          className="items"
          role="listbox"
          aria-label="Stored plans"
          aria-activedescendant={selected && `plan-${selected}`}
          count={plans.length}
          rowHeight={62}
          keyOf={(i) => plans[i]?.plan_id ?? String(i)}
          onEnd={() => query.hasNextPage && !query.isFetchingNextPage && void query.fetchNextPage()}
          onKeyDown={(event) => {
            const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            if (!by) return;
            event.preventDefault();
            const at = plans.findIndex((plan) => plan.plan_id === selected);
            const next = plans[Math.min(plans.length - 1, Math.max(0, at + by))];
            if (next) onSelect(next.plan_id);
          }}
          row={(i) => {
            const plan = plans[i];
            return plan && <PlanRow plan={plan} on={plan.plan_id === selected} onSelect={onSelect} />;
          }}
        />
      )}
    </>
  );
}

function PlanRow({ plan, on, onSelect }: { plan: PlannedView; on: boolean; onSelect: (id: string) => void }) {
  return (
    <div id={`plan-${plan.plan_id}`} role="option" aria-selected={on} className={on ? "item sel" : "item"} onClick={() => onSelect(plan.plan_id)}>
      <div className="item-h">
        <PlanStateMark state={plan.state} />
        <span className="muted num nowrap">{relative(plan.created_at)}</span>
      </div>
      <div className="ell"><SafeText text={plan.query} most={200} /></div>
      <div className="ell muted mono"><SafeText text={plan.plan_id} most={60} /> · version {plan.version}</div>
    </div>
  );
}
