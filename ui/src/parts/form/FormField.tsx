import { useId, useMemo, type ReactNode } from "react";
import { pointer } from "@/lib/expression";
import { plainText } from "@/lib/safe-text";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { Body, isBox } from "./Body";
import { RawText } from "./RawText";
import type { Key, Schema } from "./schema";
import { shapeOf, type Shape } from "./shape";
import { getAt, setRaw, setValue, touch } from "./state";
import { useFormContext, useIssues } from "./use-form";
import { asText } from "./words";

interface Props {
  schema: Schema;
  keys: Key[];
  name: string;
  required: boolean;
  /** Such as a button that takes an item away. */
  end?: ReactNode;
  keepEmpty?: boolean;
}

/** One member of the value: its name, its type, how it is written, its control, and what is wrong. */
export function FormField({ schema, keys, name, required, end, keepEmpty }: Props) {
  const { form } = useFormContext();
  const shape = useMemo(() => shapeOf(schema, form.schema), [schema, form.schema]);
  const id = useId();
  const raw = shape.kind === "raw" || form.state.texts.get(pointer(keys))?.as === "json";
  const isNull = !raw && shape.nullable && getAt(form.state.value, keys) === null;
  const issues = useIssues(keys);
  const about = shape.description || issues.length > 0 || shape.kind === "raw" ? `${id}-about` : undefined;
  const box = isBox(shape) && !raw && !isNull;
  const label = plainText(shape.title && shape.title !== name ? `${name} (${shape.title})` : name);
  const head = (
    <div className="lb">
      {box || isNull ? <span className="ellname" id={`${id}-name`}><SafeText text={label} most={120} /></span> : <label htmlFor={id} className="ellname"><SafeText text={label} most={120} /></label>}
      {required && <span className="req" title="required"><span aria-hidden="true">*</span><span className="sr">required</span></span>}
      <span className="ty">{shape.type}</span>
      <span className="r row">
        {shape.kind !== "raw" && <Modes keys={keys} shape={shape} label={label} raw={raw} isNull={isNull} />}
        {end}
      </span>
    </div>
  );
  return (
    <div className="field" role={box ? "group" : undefined} aria-labelledby={box ? `${id}-name` : undefined} onBlur={(event) => !box && !event.currentTarget.contains(event.relatedTarget) && form.change((state) => touch(state, keys))}>
      {head}
      {raw ? (
        <RawText keys={keys} label={label} id={id} describedBy={about} />
      ) : isNull ? (
        <code className="muted">null</code>
      ) : (
        <Body schema={schema} keys={keys} shape={shape} label={label} required={required} id={id} describedBy={about} level={0} keepEmpty={keepEmpty} />
      )}
      {about && (
        <div id={about} className="about">
          {issues.map((issue) => <div key={issue.message} className="help bad"><SafeText text={issue.message} most={300} /></div>)}
          {shape.description && <div className="help"><SafeText text={shape.description} most={1500} /></div>}
          {shape.kind === "raw" && <div className="help">JSON: <SafeText text={shape.why} most={200} /></div>}
        </div>
      )}
      {shape.examples.length > 0 && <div className="help">for example <code><SafeText text={shape.examples.slice(0, 3).map(asText).join(", ")} most={200} /></code></div>}
    </div>
  );
}

function Modes({ keys, shape, label, raw, isNull }: { keys: Key[]; shape: Shape; label: string; raw: boolean; isNull: boolean }) {
  const { form } = useFormContext();
  const options = [
    { value: "value", label: "Value" },
    ...(shape.nullable ? [{ value: "null", label: "Null" }] : []),
    { value: "raw", label: "JSON" },
  ];
  return (
    <Segmented
      mini
      label={`How ${label} is written`}
      value={raw ? "raw" : isNull ? "null" : "value"}
      options={options}
      onChange={(mode) => {
        if (mode === "raw") form.change((state) => setRaw(state, keys, true));
        else if (mode === "null") form.change((state) => setValue(state, keys, null));
        else form.change((state) => (isNull ? setValue(state, keys, undefined) : setRaw(state, keys, false)));
      }}
    />
  );
}
