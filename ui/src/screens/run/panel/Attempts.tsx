import type { StepDetail } from "@/api/types";
import { duration, plural } from "@/lib/format";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import type { AnyState } from "@/parts/State";
import { useRunContext } from "../context";

const STATE: Record<string, AnyState> = { done: "success", failed: "failed", in_doubt: "in_doubt", lost: "in_doubt", cancelled: "cancelled", open: "running" };
const WORD: Record<string, string> = { done: "succeeded", failed: "failed", in_doubt: "in doubt", lost: "lost: the process stopped", cancelled: "cancelled", open: "under way" };
const EVENT: Record<string, [AnyState, string]> = {
  called: ["running", "Rollback called"],
  retrying: ["waiting", "Rollback failed, will be tried again"],
  rolled_back: ["rolled_back", "Rolled back"],
  failed: ["rollback_failed", "Rollback failed"],
};

/** Every call with its error and the pause after it, then the rollback. Times count from the run's start. */
export function Attempts({ path, detail }: { path: string; detail: StepDetail | undefined }) {
  const { model: { run, byPath } } = useRunContext();
  const t0 = run.started_at ? Date.parse(run.started_at) : 0;
  const since = (iso: string) => duration(Math.max(0, Date.parse(iso) - t0));
  if (!byPath.has(path)) return null;
  if (!detail) return <Skeleton rows={2} label="Loading attempts" />;
  const events = detail.rollback?.events ?? [];
  return (
    <section aria-label="Attempts">
      <div className="sec">
        <h2>Attempts</h2>
        <span className="r muted">{plural(detail.attempts.length, "call")}{events.length > 0 && ", 1 rollback"}</span>
      </div>
      {detail.attempts.length === 0 && <p className="muted">No call was made</p>}
      {detail.attempts.map((one, i) => (
        <div key={i}>
          <div className={`att s-${STATE[one.outcome] ?? "pending"}`}>
            <Icon name={`s-${STATE[one.outcome] ?? "pending"}`} />
            <span className="num muted">{since(one.started_at)}</span>
            <span>Call {i + 1} {WORD[one.outcome] ?? one.outcome}</span>
            <span className="num">{one.duration_ms != null && duration(one.duration_ms)}</span>
            {one.message && <span className="d"><SafeText text={one.message} most={1000} /> {one.code && <code>{one.code}</code>}</span>}
          </div>
          {one.pause_ms ? (
            <div className="att pause">
              <span />
              <span className="num">{duration(Date.parse(one.started_at) - t0 + (one.duration_ms ?? 0))}</span>
              <span>Pause before the next attempt</span>
              <span className="num">{duration(one.pause_ms)}</span>
            </div>
          ) : null}
        </div>
      ))}
      {events.map((event, i) => {
        const [state, word] = EVENT[event.what] ?? ["pending", event.what];
        return (
          <div key={`r${i}`} className={`att s-${state}`}>
            <Icon name={event.what === "called" ? "i-rb" : `s-${state}`} />
            <span className="num muted">{since(event.at)}</span>
            <span>{word}</span>
            <span />
            {event.message && <span className="d"><SafeText text={event.message} most={1000} /></span>}
          </div>
        );
      })}
    </section>
  );
}
