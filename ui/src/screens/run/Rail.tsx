import { duration } from "@/lib/format";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { stateWord, type AnyState } from "@/parts/State";
import { useRunContext } from "./context";
import type { RailStep } from "./rollback";

const STATE: Record<RailStep["state"], AnyState> = { done: "rolled_back", running: "running", next: "pending", failed: "rollback_failed", impossible: "rollback_failed" };
const MOST = 24;

/** What Segue rolls back, in order, and what stays. It stays on the screen afterwards. */
export function RollbackRail() {
  const { rail, model, select, selected } = useRunContext();
  if (!rail.active || rail.steps.length === 0) return null;
  const live = model.run.status === "running";
  const stays = rail.steps.filter((step) => step.order === null).length;
  return (
    <section className="rail box" aria-label="Rollback of the run">
      <div className="h">
        <b>Rollback</b>
        <span className="muted">
          {rail.done} of {rail.total} done, in reverse order of completion{stays > 0 && `, ${stays} cannot be rolled back`}
        </span>
        <span className="grow" />
        {live && <span className="muted">A cancel does not stop a rollback</span>}
      </div>
      <ol>
        {rail.steps.slice(0, MOST).map((step) => (
          <li key={step.path}>
            <button type="button" className={`s-${STATE[step.state]}${selected === step.path ? " sel" : ""}`} onClick={() => select(step.path)}>
              <Icon name={`s-${STATE[step.state]}`} label={step.state === "impossible" ? "cannot be rolled back" : stateWord(STATE[step.state])} />
              <span className="ell">
                <b><SafeText text={step.path} most={40} /></b> {step.state === "impossible" ? "stays" : step.state === "next" ? "next" : ""}
              </span>
              <span className="d ell">{railText(step)}</span>
            </button>
          </li>
        ))}
        {rail.steps.length > MOST && <li className="muted">and {rail.steps.length - MOST} more in the outline</li>}
      </ol>
    </section>
  );
}

function railText(step: RailStep) {
  const { rollback } = step.plan;
  if (rollback.kind === "impossible") return <SafeText text={rollback.reason} most={80} />;
  if (rollback.kind === "call") return <SafeText text={rollback.tool.slice(rollback.tool.indexOf(":") + 1)} most={60} />;
  return step.state === "impossible" ? "no rollback is declared" : duration(step.view.duration_ms);
}
