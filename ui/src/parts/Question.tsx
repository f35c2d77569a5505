import type { WaitView } from "@/api/types";
import { relative } from "@/lib/format";
import { EffectMark } from "./Marks";
import { SafeText, ToolName } from "./SafeText";

const KINDS: Record<string, string> = {
  run: "May this composition run?",
  call: "May it call this tool?",
  approval: "Approval",
  doubt: "Did this call do its work?",
};

/** What is asked, with which arguments. Arguments are never cut. */
export function Question({ question, askedAt }: { question: WaitView; askedAt: string | null }) {
  return (
    <section className="question" aria-label={KINDS[question.kind] ?? question.kind}>
      <h2>{KINDS[question.kind] ?? question.kind}</h2>
      <p><SafeText text={question.message} most={1_000_000} /></p>
      {question.tool && <ToolName tool={question.tool} />}
      {question.args !== undefined && question.args !== null && (
        <pre className="code whole" tabIndex={0} aria-label="Arguments"><SafeText text={JSON.stringify(question.args, null, 2)} most={Infinity} /></pre>
      )}
      {(question.covers ?? []).map((covered, i) => (
        <div key={i} className="row">
          <ToolName tool={covered.tool} />
          <EffectMark effect={covered.effect} />
          {covered.takes_back && <span className="muted">for a rollback</span>}
          {!covered.can_be_undone && !covered.takes_back && <span className="muted">cannot be rolled back</span>}
        </div>
      ))}
      {askedAt && <p className="muted">Asked {relative(askedAt)}</p>}
    </section>
  );
}
