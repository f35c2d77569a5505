import { useId, useMemo, useRef, useState, type DragEvent, type ReactNode } from "react";
import { pointer } from "@/lib/expression";
import { plainText } from "@/lib/safe-text";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { Body, isBox } from "./Body";
import { isLarge, LargeValue } from "./LargeValue";
import { RawText } from "./RawText";
import type { Key, Schema } from "./schema";
import { shapeOf, type Shape } from "./shape";
import { getAt, setRaw, setTemplate, setText, setValue, touch } from "./state";
import { useFormContext, useIssues, type Form } from "./use-form";
import { asText, isTemplate } from "./words";

interface Props {
  schema: Schema;
  keys: Key[];
  name: string;
  required: boolean;
  /** Such as a button that takes an item away. */
  end?: ReactNode;
  keepEmpty?: boolean;
}

type Mode = "value" | "null" | "raw" | "template";

/** Whether the field may be an expression. */
const mayBeTemplate = (form: Form, shape: Shape): boolean => !!form.templates && (form.templates.allows?.(shape, form.schema) ?? true);

function modeOf(form: Form, keys: Key[], shape: Shape): Mode {
  const typed = form.state.texts.get(pointer(keys))?.as;
  if (typed === "json") return "raw";
  const value = getAt(form.state.value, keys);
  if (form.templates && (typed === "template" || isTemplate(value))) return "template";
  // Where any value fits, a text is written as it is, with expressions or without.
  if (shape.kind === "raw") return typeof value === "string" && mayBeTemplate(form, shape) ? "template" : "raw";
  return shape.nullable && value === null ? "null" : "value";
}

/** One member of the value: its name, its type, how it is written, its control, and what is wrong. */
export function FormField({ schema, keys, name, required, end, keepEmpty }: Props) {
  const { form } = useFormContext();
  const shape = useMemo(() => shapeOf(schema, form.schema), [schema, form.schema]);
  const id = useId();
  const mode = modeOf(form, keys, shape);
  const value = getAt(form.state.value, keys);
  const large = isLarge(value);
  // A text becomes an expression with its second brace: the editor that takes the place of its control goes on.
  const typing = useRef(false);
  const issues = useIssues(keys);
  const preset = form.templates && value === undefined ? shape.preset : null;
  const about = shape.description || issues.length > 0 || (mode === "raw" && shape.kind === "raw") || preset ? `${id}-about` : undefined;
  const box = mode === "value" && isBox(shape);
  const group = box || large;
  const drop = useDrop(form, keys);
  const label = plainText(shape.title && shape.title !== name ? `${name} (${shape.title})` : name);
  const head = (
    <div className="lb">
      {group || mode === "null" || mode === "template" ? <span className="ellname" id={`${id}-name`}><SafeText text={label} most={120} /></span> : <label htmlFor={id} className="ellname"><SafeText text={label} most={120} /></label>}
      {required && <span className="req" title="required"><span aria-hidden="true">*</span><span className="sr">required</span></span>}
      <span className="ty">{shape.type}</span>
      <span className="r row">
        {(shape.kind !== "raw" || mayBeTemplate(form, shape)) && <Modes keys={keys} shape={shape} label={label} mode={mode} />}
        {end}
      </span>
    </div>
  );
  return (
    <div className={drop.over ? "field dropping" : "field"} data-field={form.templates ? pointer(keys) : undefined} role={group ? "group" : undefined} aria-labelledby={group ? `${id}-name` : undefined} onFocus={(event) => void (typing.current = event.target.matches("input, textarea"))} onBlur={(event) => !group && !event.currentTarget.contains(event.relatedTarget) && form.change((state) => touch(state, keys))} {...drop.on}>
      {head}
      {large ? (
        <LargeValue keys={keys} value={value} label={label} />
      ) : mode === "template" && form.templates ? (
        <form.templates.Field keys={keys} schema={schema} id={id} label={label} describedBy={about} value={form.state.texts.get(pointer(keys))?.text ?? String(value ?? "")} onChange={(text) => form.change((state) => setText(state, keys, text, "template"))} autoFocus={typing.current} />
      ) : mode === "raw" ? (
        <RawText keys={keys} label={label} id={id} describedBy={about} />
      ) : mode === "null" ? (
        <code className="muted">null</code>
      ) : (
        <Body schema={schema} keys={keys} shape={shape} label={label} required={required} id={id} describedBy={about} level={0} keepEmpty={keepEmpty} />
      )}
      {about && <About id={about} issues={issues.map((issue) => issue.message)} shape={shape} preset={preset} raw={mode === "raw"} />}
      {shape.examples.length > 0 && <div className="help">for example <code><SafeText text={shape.examples.slice(0, 3).map(asText).join(", ")} most={200} /></code></div>}
    </div>
  );
}

function About({ id, issues, shape, preset, raw }: { id: string; issues: string[]; shape: Shape; preset: { value: unknown } | null; raw: boolean }) {
  return (
    <div id={id} className="about">
      {issues.map((message) => <div key={message} className="help bad"><SafeText text={message} most={300} /></div>)}
      {preset && <div className="help">not set: <code><SafeText text={JSON.stringify(preset.value)} most={120} /></code> is the default</div>}
      {shape.description && <div className="help"><SafeText text={shape.description} most={1500} /></div>}
      {raw && shape.kind === "raw" && <div className="help">JSON: <SafeText text={shape.why} most={200} /></div>}
    </div>
  );
}

/** What the page drags may be dropped on the whole field; an editor inside takes its own drops. */
function useDrop(form: Form, keys: Key[]) {
  const [over, setOver] = useState(false);
  const { templates } = form;
  if (!templates?.onDrop) return { over: false, on: {} };
  const accepts = (event: DragEvent) => !event.defaultPrevented && (templates.accepts?.(event.dataTransfer) ?? false);
  return {
    over,
    on: {
      onDragOver: (event: DragEvent) => {
        if (!accepts(event)) return;
        event.preventDefault();
        event.stopPropagation();
        setOver(true);
      },
      onDragLeave: () => setOver(false),
      onDrop: (event: DragEvent) => {
        setOver(false);
        if (event.defaultPrevented || !templates.onDrop?.(keys, event.dataTransfer)) return;
        event.preventDefault();
        event.stopPropagation();
      },
    },
  };
}

function Modes({ keys, shape, label, mode }: { keys: Key[]; shape: Shape; label: string; mode: Mode }) {
  const { form } = useFormContext();
  const options: { value: Mode; label: string; title?: string }[] = [
    ...(shape.kind === "raw" ? [] : [{ value: "value" as const, label: "Value" }]),
    ...(mayBeTemplate(form, shape) || mode === "template" ? [{ value: "template" as const, label: shape.kind === "raw" ? "Text" : "Expr", title: "A text with expressions" }] : []),
    ...(shape.nullable ? [{ value: "null" as const, label: "Null" }] : []),
    { value: "raw", label: "JSON" },
  ];
  const choose = (next: Mode) => {
    if (next === "raw") form.change((state) => setRaw(state, keys, true));
    else if (next === "template") form.change((state) => setTemplate(state, keys));
    else if (next === "null") form.change((state) => setValue(state, keys, null));
    // An expression is no value of the field, unless it is a text anyway; null is none either.
    else form.change((state) => (mode === "null" || (mode === "template" && isTemplate(getAt(state.value, keys))) ? setValue(state, keys, undefined) : setRaw(state, keys, false)));
  };
  return <Segmented mini label={`How ${label} is written`} value={mode} options={options} onChange={choose} />;
}
