import { Link } from "@tanstack/react-router";
import type { ComparedStep, Comparison, Difference } from "@/api/types";
import { isCut } from "@/lib/json-rows";
import { SafeText } from "@/parts/SafeText";
import { verdict } from "./rows";

/** Where the values of a step differ; without a step, where the results do. */
export function Differences({ step, data }: { step: ComparedStep | undefined; data: Comparison }) {
  const differences = step ? step.differences : (data.differences ?? []);
  return (
    <aside className="cmp-panel" aria-label="Differences" tabIndex={0}>
      <h2><SafeText text={step ? step.id : "Result of the run"} most={120} /></h2>
      <p className="muted">{step ? verdict(step) : data.output === "differs" ? "the results differ" : "the results are the same"}</p>
      {step && (
        <p className="row">
          {step.left && <Link to="/runs/$id" params={{ id: data.left.run_id }} search={{ step: step.id }}>Left step</Link>}
          {step.right && <Link to="/runs/$id" params={{ id: data.right.run_id }} search={{ step: step.id }}>Right step</Link>}
        </p>
      )}
      {differences.map((one, i) => <One key={i} one={one} />)}
      {differences.length >= 20 && <p className="muted">Only the first 20 differences are listed.</p>}
    </aside>
  );
}

function One({ one }: { one: Difference }) {
  return (
    <div className="cmp-diff">
      <code className="muted">{one.part} <SafeText text={one.pointer || "/"} most={200} /></code>
      <pre className="del" aria-label="left"><SafeText text={shown(one.left)} most={2000} /></pre>
      <pre className="ins" aria-label="right"><SafeText text={shown(one.right)} most={2000} /></pre>
    </div>
  );
}

function shown(value: unknown): string {
  if (value === undefined) return "absent";
  if (isCut(value)) return `${JSON.stringify(value.$cut.preview, null, 1)}… (${value.$cut.bytes} bytes)`;
  return JSON.stringify(value, null, 1);
}
