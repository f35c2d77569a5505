import { useId, useMemo, useState } from "react";
import { pointer } from "@/lib/expression";
import { Button } from "@/parts/Button";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { plainText } from "@/lib/safe-text";
import type { BodyProps, Of } from "./Body";
import { same, type Key } from "./schema";
import { getAt, setText, setValue } from "./state";
import { useFormContext, useIssues } from "./use-form";
import { asText } from "./words";

function useValue(keys: Key[]): [unknown, (next: unknown) => void] {
  const { form } = useFormContext();
  return [getAt(form.state.value, keys), (next) => form.change((state) => setValue(state, keys, next))];
}

const PLACEHOLDER: Record<string, string> = { "date-time": "2026-01-31T09:30:00Z", time: "09:30:00Z", email: "name@example.org", uri: "https://", uuid: "00000000-0000-0000-0000-000000000000" };

/** An empty text is no value; who wants to send one writes `""` as JSON. */
export function StringBody({ keys, shape, id, describedBy, required, label, keepEmpty }: Of<"string">) {
  const [value, set] = useValue(keys);
  const bad = useIssues(keys).length > 0;
  const shared = {
    id,
    "aria-label": id ? undefined : label,
    "aria-describedby": describedBy,
    "aria-invalid": bad || undefined,
    "aria-required": required || undefined,
    value: typeof value === "string" ? value : "",
    placeholder: PLACEHOLDER[shape.format ?? ""],
    spellCheck: false,
    autoComplete: "off",
    onChange: (event: { target: { value: string } }) => set(event.target.value === "" && !keepEmpty ? undefined : event.target.value),
  };
  if (shape.secret) return <input {...shared} className="input" type="password" autoComplete="new-password" />;
  if (shape.format === "date") return <input {...shared} className="input" type="date" />;
  if (shape.format) return <input {...shared} className="input" type="text" inputMode={shape.format === "email" ? "email" : shape.format === "uri" ? "url" : "text"} />;
  return <textarea {...shared} className="input grows" rows={shape.long ? 4 : 1} />;
}

export function NumberBody({ keys, shape, id, describedBy, required, label }: Of<"number">) {
  const { form } = useFormContext();
  const typed = form.state.texts.get(pointer(keys));
  const value = getAt(form.state.value, keys);
  const bad = useIssues(keys).length > 0;
  return (
    <input
      id={id}
      className="input num"
      type="text"
      inputMode={shape.integer ? "numeric" : "decimal"}
      aria-label={id ? undefined : label}
      aria-describedby={describedBy}
      aria-invalid={bad || undefined}
      aria-required={required || undefined}
      value={typed?.text ?? (typeof value === "number" ? String(value) : "")}
      onChange={(event) => {
        const { value: text } = event.target;
        form.change((state) => setText(state, keys, text, shape.integer ? "integer" : "number"));
      }}
    />
  );
}

export function BooleanBody({ keys, label, required }: Of<"boolean">) {
  const [value, set] = useValue(keys);
  const options = [...(required && value !== undefined ? [] : [{ value: "unset", label: "not set" }]), { value: "true", label: "true" }, { value: "false", label: "false" }];
  return (
    <div>
      <Segmented mini label={label} value={value === true ? "true" : value === false ? "false" : "unset"} options={options} onChange={(next) => set(next === "unset" ? undefined : next === "true")} />
    </div>
  );
}

/** More options than this are searched, not listed. */
const OPTIONS_MOST = 200;
const OFFERED = 50;

export function EnumBody(props: Of<"enum">) {
  return props.shape.options.length > OPTIONS_MOST ? <SearchedEnum {...props} /> : <ListedEnum {...props} />;
}

/** A text that must be the name of an option; some that begin like it are offered. */
function SearchedEnum({ keys, shape, id, describedBy, required, label }: Of<"enum">) {
  const [value, set] = useValue(keys);
  const [typed, setTyped] = useState<string | null>(null);
  const bad = useIssues(keys).length > 0;
  const list = useId();
  const text = typed ?? (value === undefined ? "" : asText(value));
  const offered = useMemo(() => {
    const words = text.toLowerCase();
    const out: string[] = [];
    for (const option of shape.options) {
      if (option.label.toLowerCase().includes(words) && out.push(option.label) >= OFFERED) break;
    }
    return out;
  }, [text, shape]);
  return (
    <>
      <input
        id={id}
        className="input"
        list={list}
        aria-label={id ? undefined : label}
        aria-describedby={describedBy}
        aria-invalid={bad || undefined}
        aria-required={required || undefined}
        value={text}
        placeholder={`one of ${shape.options.length}: type to search`}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => {
          const next = event.target.value;
          const found = shape.options.find((option) => option.label === next);
          setTyped(next);
          if (found || next === "") set(found?.value);
        }}
        onBlur={() => setTyped(null)}
      />
      <datalist id={list}>{offered.map((one) => <option key={one} value={one} />)}</datalist>
    </>
  );
}

function ListedEnum({ keys, shape, id, describedBy, required, label }: Of<"enum">) {
  const [value, set] = useValue(keys);
  const at = value === undefined ? -1 : shape.options.findIndex((option) => same(option.value, value));
  const bad = useIssues(keys).length > 0;
  return (
    <select id={id} className="input" aria-label={id ? undefined : label} aria-describedby={describedBy} aria-invalid={bad || undefined} aria-required={required || undefined} value={at} onChange={(event) => set(shape.options[Number(event.target.value)]?.value)}>
      {(!required || at < 0) && <option value={-1}>{value === undefined ? "not set" : `${plainText(asText(value)).slice(0, 60)} (not allowed)`}</option>}
      {shape.options.map((option, i) => (
        <option key={i} value={i}>{plainText(option.label).slice(0, 200)}{option.label !== asText(option.value) ? ` (${plainText(asText(option.value)).slice(0, 80)})` : ""}</option>
      ))}
    </select>
  );
}

export function SeveralBody({ keys, shape, label }: Of<"several">) {
  const [value, set] = useValue(keys);
  const chosen = Array.isArray(value) ? value : [];
  return (
    <div className="several" role="group" aria-label={label}>
      {shape.options.map((option, i) => {
        const on = chosen.some((one) => same(one, option.value));
        return (
          <label key={i}>
            <input type="checkbox" checked={on} onChange={() => set(on ? chosen.filter((one) => !same(one, option.value)) : shape.options.map((one) => one.value).filter((one) => same(one, option.value) || chosen.some((other) => same(other, one))))} />
            <SafeText text={option.label} most={120} />
          </label>
        );
      })}
    </div>
  );
}

/** There is one value: it is shown, and may be left out when nothing requires it. */
export function FixedBody({ keys, value, required, label }: BodyProps & { value: unknown }) {
  const [now, set] = useValue(keys);
  return (
    <div className="row">
      <code><SafeText text={JSON.stringify(value)} most={400} /></code>
      {now === undefined && <Button size="small" icon="i-plus" aria-label={`Send ${label}`} onClick={() => set(value)}>Send it</Button>}
      {now !== undefined && !required && <Button size="small" kind="ghost" aria-label={`Leave it out: ${label}`} onClick={() => set(undefined)}>Leave it out</Button>}
    </div>
  );
}
