import { useEffect, useRef } from "react";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { brief } from "./brief";
import type { Mirror } from "./expression-mirror";
import "./expression.css";
import type { ExpressionService } from "./types";
import { DRAFT_MOST, usePreview, type Preview } from "./use-preview";

interface Props {
  id: string;
  label: string;
  describedBy?: string | undefined;
  value: string;
  onChange: (text: string) => void;
  service: ExpressionService;
  /** One expression, which may stand without braces. */
  condition?: boolean;
  autoFocus?: boolean;
  /** Asks for the preview again when the run or the rest of the text changed. */
  version?: unknown;
  /** Why the value does not fit the field, else null. */
  misfit?: (value: unknown) => string | null;
}

/** The text of an expression, with completion, colours, and below it the value on the data of the last run. */
export function ExpressionField({ id, label, describedBy, value, onChange, service, condition = false, autoFocus = false, version, misfit }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const mirror = useRef<Mirror | null>(null);
  // What was typed and did not come back as `value` yet: it may be older than what is typed meanwhile.
  const typed = useRef<string[]>([]);
  const latest = useRef({ value, onChange, service });
  latest.current = { value, onChange, service };
  useEffect(() => {
    let gone = false;
    void import("./expression-mirror").then(({ mount }) => {
      if (gone || !host.current) return;
      mirror.current = mount(host.current, {
        value: latest.current.value,
        label,
        condition,
        autoFocus,
        onChange: (text) => {
          typed.current.push(text);
          latest.current.onChange(text);
        },
        complete: (draft, at, signal) => latest.current.service.complete(draft, at, signal),
      });
    });
    return () => {
      gone = true;
      typed.current = [];
      mirror.current?.destroy();
      mirror.current = null;
    };
    // The name and the kind of a field do not change while it is shown; its focus is taken once.
    // eslint-disable-next-line
  }, [label, condition]);
  useEffect(() => {
    const own = typed.current.indexOf(value);
    typed.current.splice(0, own < 0 ? typed.current.length : own + 1);
    if (own < 0) mirror.current?.setValue(value);
  }, [value]);
  const preview = usePreview(value, service.preview, version);
  return (
    <>
      <div id={id} ref={host} className="exprfield" aria-describedby={describedBy} />
      <PreviewLine draft={value} preview={preview} misfit={misfit} example={condition ? "a condition such as input.count > 3" : "an expression such as {{ input.name }}"} />
    </>
  );
}

function PreviewLine({ draft, preview, misfit, example }: { draft: string; preview: Preview; misfit: Props["misfit"]; example: string }) {
  const { result, failed, stale } = preview;
  if (draft.length > DRAFT_MOST) return <div className="prev muted">too long for a preview</div>;
  if (failed) return <div className="prev muted">no preview: <SafeText text={failed} most={200} /></div>;
  if (!result) return <div className="prev muted">{draft.trim() === "" ? example : " "}</div>;
  if (result.error) {
    return (
      <div className={stale ? "prev bad stale" : "prev bad"}>
        <Icon name="s-failed" small label="fails" />
        <SafeText text={result.error} most={300} />
      </div>
    );
  }
  const why = misfit?.(result.value) ?? null;
  const known = result.value !== undefined;
  return (
    <div className={stale ? "prev stale" : "prev"}>
      {known && <><span className="muted">=</span><span className="ell v"><SafeText text={brief(result.value)} most={160} /></span></>}
      {result.type && <span className="muted"><SafeText text={result.type} most={60} /></span>}
      {!known && <span className="muted">no value yet</span>}
      {known && misfit && (why ? <span className="bad"><SafeText text={why} most={160} /></span> : <span className="muted">fits</span>)}
    </div>
  );
}
