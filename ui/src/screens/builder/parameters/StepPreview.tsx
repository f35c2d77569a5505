import { useEffect, useState } from "react";
import { brief } from "@/parts/expression/brief";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import type { BuilderContext, PreviewField } from "../model";
import { preview } from "../requests";

const PAUSE_MS = 80;

interface Shown {
  fields: PreviewField[];
  tookMs: number;
  failed: string | null;
}

/** The arguments of a step as they would be sent now, on the data of the last run. */
export function StepPreview({ context, step, runName }: { context: BuilderContext; step: string; runName: string | null }) {
  const { text, name, run } = context;
  const [shown, setShown] = useState<Shown | null>(null);
  useEffect(() => {
    const asking = new AbortController();
    const timer = setTimeout(() => {
      const from = performance.now();
      preview({ text, name, run }, step, null, asking.signal).then(
        (fields) => asking.signal.aborted || setShown({ fields, tookMs: performance.now() - from, failed: null }),
        (error: unknown) => asking.signal.aborted || setShown({ fields: [], tookMs: 0, failed: error instanceof Error ? error.message : String(error) }),
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [text, name, run, step]);
  return (
    <section className="steppreview" aria-label="Preview of the arguments">
      <div className="help">{runName ? <>Live preview with the last run, <SafeText text={runName} most={40} /></> : "Live preview; there is no run yet"}{shown && !shown.failed && `, ${Math.round(shown.tookMs)} ms`}</div>
      <dl className="code" tabIndex={0}>
        {shown?.failed && <div><dd className="bad"><SafeText text={shown.failed} most={300} /></dd></div>}
        {shown?.fields.map((field) => (
          <div key={field.field}>
            <dt><SafeText text={field.field.replace(/^\//, "") || "all"} most={80} /></dt>
            {field.error ? (
              <dd className="bad"><Icon name="s-failed" small label="fails" /><SafeText text={field.error} most={200} /></dd>
            ) : (
              <dd>{field.value === undefined ? <span className="muted">no value yet</span> : <SafeText text={brief(field.value, 200)} most={240} />} {field.type && <span className="muted"><SafeText text={field.type} most={40} /></span>}</dd>
            )}
          </div>
        ))}
      </dl>
    </section>
  );
}
