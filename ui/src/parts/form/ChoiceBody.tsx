import { useMemo } from "react";
import { pointer } from "@/lib/expression";
import { plainText } from "@/lib/safe-text";
import { Segmented } from "@/parts/Segmented";
import { Body, type Of } from "./Body";
import { initial } from "./initial";
import { alternativeOf, shapeOf } from "./shape";
import { getAt, pick } from "./state";
import { useFormContext } from "./use-form";
import { fits } from "./validate";

/** `oneOf`, `anyOf`, and several types: choose the alternative, then fill it in. */
export function ChoiceBody({ keys, shape, label, required, level, id, describedBy }: Of<"choice">) {
  const { form } = useFormContext();
  const place = `${pointer(keys)}${"?".repeat(level + 1)}`;
  const value = getAt(form.state.value, keys);
  const chosen = form.state.picks.get(place) ?? (value === undefined ? 0 : alternativeOf(shape.options, value, form.schema, (schema) => fits(schema, value, form.schema, !!form.templates)));
  const at = Math.min(chosen, shape.options.length - 1);
  const option = shape.options[at];
  const inner = useMemo(() => option && shapeOf(option.schema, form.schema), [option, form.schema]);
  const choose = (next: number) => {
    const to = shape.options[next];
    if (to) form.change((state) => pick(state, keys, place, next, initial(to.schema, form.schema)));
  };
  const options = shape.options.map((one, i) => ({ value: String(i), label: plainText(one.label).slice(0, 40) }));
  const name = `Kind of ${label}`;
  return (
    <div className="choice">
      {shape.options.length <= 4 && shape.options.every((one) => one.label.length <= 24) ? (
        <div><Segmented mini label={name} value={String(at)} options={options} onChange={(next) => choose(Number(next))} /></div>
      ) : (
        <select className="input" aria-label={name} value={at} onChange={(event) => choose(Number(event.target.value))}>
          {options.map((one) => <option key={one.value} value={one.value}>{one.label}</option>)}
        </select>
      )}
      {inner?.description && <div className="help">{plainText(inner.description).slice(0, 400)}</div>}
      {option && inner && <Body key={at} schema={option.schema} keys={keys} shape={inner} label={label} required={required} level={level + 1} id={id} describedBy={describedBy} />}
    </div>
  );
}
