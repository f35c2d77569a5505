import type { Question } from "@/api/types";
import { EffectMark } from "@/parts/Marks";
import { SafeText, ToolName } from "@/parts/SafeText";

type Covered = NonNullable<Question["question"]["covers"]>[number];

/** Every call that a yes allows: forward calls, then those of a rollback. */
export function Covers({ data: { question } }: { data: Question }) {
  const covers = question.covers ?? [];
  const forward = covers.filter((one) => !one.takes_back && (question.kind === "run" || one.tool !== question.tool));
  const back = covers.filter((one) => one.takes_back);
  if (forward.length + back.length === 0) return null;
  return (
    <section className="qcovers" aria-label="What a yes covers">
      <h3>A yes covers</h3>
      {forward.length > 0 && <Calls title={question.kind === "run" ? "It may call" : "Inside, it may call"} calls={forward} />}
      {back.length > 0 && <Calls title="To roll that back, it may call" calls={back} />}
    </section>
  );
}

function Calls({ title, calls }: { title: string; calls: Covered[] }) {
  return (
    <>
      <h4>{title}</h4>
      <ul>
        {calls.map((one, i) => (
          <li key={i}>
            <span className="row">
              <ToolName tool={one.tool} />
              <EffectMark effect={one.effect} />
              {!one.takes_back && !one.can_be_undone && one.effect !== "reads" && one.effect !== "none" && <span className="mark no">cannot be rolled back</span>}
              {one.arguments === undefined && <span className="muted">arguments are not known in advance</span>}
            </span>
            {one.arguments !== undefined && <pre className="code whole"><SafeText text={JSON.stringify(one.arguments, null, 2)} most={Infinity} /></pre>}
          </li>
        ))}
      </ul>
    </>
  );
}
