import { plural } from "@/lib/format";
import { Button, IconButton } from "@/parts/Button";
import type { Of } from "./Body";
import { FormField } from "./FormField";
import { initial } from "./initial";
import { getAt, removeItem, setValue } from "./state";
import { useFormContext } from "./use-form";

/** More items than this are JSON text: a form of thousands of fields helps nobody. */
const ITEMS_MOST = 100;

export function ArrayBody({ keys, shape, label, required }: Of<"array">) {
  const { form } = useFormContext();
  const value = getAt(form.state.value, keys);
  const items = Array.isArray(value) ? value : [];
  const next = shape.first[items.length] ?? shape.items;
  const full = next === null || items.length >= shape.most;
  if (items.length > ITEMS_MOST) return <p className="muted">{plural(items.length, "item")}: choose JSON to change them.</p>;
  return (
    <div className="members">
      {items.map((_, i) => (
        <div key={i} className="item">
          <FormField
            schema={shape.first[i] ?? shape.items ?? true}
            keys={[...keys, i]}
            name={`[${i}]`}
            required
            end={<IconButton icon="i-x" size="small" kind="ghost" label={`Remove item ${i} of ${label}`} onClick={() => form.change((state) => removeItem(state, keys, i))} />}
          />
        </div>
      ))}
      <div className="row">
        <Button
          size="small"
          icon="i-plus"
          kind="ghost"
          aria-label={`Add an item to ${label}`}
          off={full ? (shape.most === 0 ? "no items are allowed" : "it is full") : null}
          onClick={() => form.change((state) => setValue(state, [...keys, items.length], initial(next ?? true, form.schema)))}
        >
          Add an item
        </Button>
        <span className="muted">{value === undefined ? "not set" : plural(items.length, "item")}</span>
        {value === undefined && required && <Button size="small" kind="ghost" aria-label={`Send ${label} empty`} onClick={() => form.change((state) => setValue(state, keys, []))}>Empty list</Button>}
        {value !== undefined && !required && <Button size="small" kind="ghost" aria-label={`Leave it out: ${label}`} onClick={() => form.change((state) => setValue(state, keys, undefined))}>Leave it out</Button>}
      </div>
    </div>
  );
}
