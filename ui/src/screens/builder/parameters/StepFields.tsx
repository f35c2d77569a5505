import { useId, useMemo, useState } from "react";
import { pointer } from "@/lib/expression";
import { plainText } from "@/lib/safe-text";
import { IconButton } from "@/parts/Button";
import { ExpressionField } from "@/parts/expression/ExpressionField";
import { FormField } from "@/parts/form/FormField";
import { shapeOf } from "@/parts/form/shape";
import { getAt, setText, setValue } from "@/parts/form/state";
import { useFormContext } from "@/parts/form/use-form";
import { SafeText } from "@/parts/SafeText";
import type { FieldGroup, StepField } from "./fields";
import { useExpressionService, useStepContext } from "./step-context";

/** One group of fields, closed while nothing of it is set. */
export function StepFields({ group, others }: { group: FieldGroup; others: readonly string[] }) {
  const { form } = useFormContext();
  const given = group.fields.filter(({ keys }) => getAt(form.state.value, keys) !== undefined).map(({ name }) => name);
  const [open, setOpen] = useState(given.length > 0 || group.fields.some((one) => one.required));
  return (
    <details className="stepgroup" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h3>{group.name}</h3>
        <span className="muted ell">{given.join(", ")}</span>
      </summary>
      {open && (
        <div className="members">
          {group.fields.map((field) => <OneField key={pointer(field.keys)} field={field} others={others} />)}
        </div>
      )}
    </details>
  );
}

function OneField({ field, others }: { field: StepField; others: readonly string[] }) {
  const { form } = useFormContext();
  const value = getAt(form.state.value, field.keys);
  if (field.as === "steps") return <StepsField field={field} others={others} />;
  // A list is written as JSON, a condition may be true or false: those keep the general field.
  if (field.as && (value === undefined || typeof value === "string")) return <CodeField field={field} />;
  return <FormField schema={field.schema} keys={field.keys} name={field.name} required={field.required} />;
}

/** A field that is always an expression. */
function CodeField({ field }: { field: StepField }) {
  const { form } = useFormContext();
  const { context } = useStepContext();
  const id = useId();
  const condition = field.as === "condition";
  const service = useExpressionService(field.keys, condition);
  const at = pointer(field.keys);
  const value = form.state.texts.get(at)?.text ?? String(getAt(form.state.value, field.keys) ?? "");
  const shape = useMemo(() => shapeOf(field.schema, form.schema), [field.schema, form.schema]);
  return (
    <div className="field" data-field={at}>
      <div className="lb">
        <span>{field.name}</span>
        {field.required && <span className="req" title="required"><span aria-hidden="true">*</span><span className="sr">required</span></span>}
        <span className="ty">{condition ? "condition" : "expression"}</span>
      </div>
      <ExpressionField id={id} label={field.name} describedBy={`${id}-about`} value={value} onChange={(text) => form.change((state) => setText(state, field.keys, text, "template"))} service={service} condition={condition} version={`${context.run} ${context.text}`} />
      <div id={`${id}-about`} className="help">{shape.description}</div>
    </div>
  );
}

const CHOICES_MOST = 100;

/** Ids of other steps: chosen ones as a list, others by name. */
function StepsField({ field, others }: { field: StepField; others: readonly string[] }) {
  const { form } = useFormContext();
  const id = useId();
  const [typed, setTyped] = useState("");
  const value = getAt(form.state.value, field.keys);
  const chosen = typeof value === "string" ? [value] : Array.isArray(value) ? value.map(String) : [];
  const set = (next: string[]) => form.change((state) => setValue(state, field.keys, next.length === 0 ? undefined : next));
  const free = others.filter((one) => !chosen.includes(one));
  const shape = useMemo(() => shapeOf(field.schema, form.schema), [field.schema, form.schema]);
  const add = (text: string) => {
    setTyped(text);
    if (!free.includes(text)) return;
    set([...chosen, text]);
    setTyped("");
  };
  return (
    <div className="field" data-field={pointer(field.keys)}>
      <div className="lb"><label htmlFor={id}>{field.name}</label><span className="ty">steps</span></div>
      {chosen.length > 0 && (
        <ul className="chosen" aria-label={`Chosen: ${field.name}`}>
          {chosen.map((one, i) => (
            <li key={one} className="tag">
              <SafeText text={one} most={80} />
              <IconButton icon="i-x" size="small" kind="ghost" label={`Do not wait for ${plainText(one)}`} onClick={() => set(chosen.filter((_, at) => at !== i))} />
            </li>
          ))}
        </ul>
      )}
      <input id={id} className="input" list={`${id}-steps`} aria-describedby={`${id}-about`} value={typed} placeholder={free.length === 0 ? "there is no other step" : "add a step"} autoComplete="off" spellCheck={false} onChange={(event) => add(event.target.value)} />
      <datalist id={`${id}-steps`}>{free.filter((one) => one.includes(typed)).slice(0, CHOICES_MOST).map((one) => <option key={one} value={one} />)}</datalist>
      <div id={`${id}-about`} className="help">{shape.description}</div>
    </div>
  );
}
