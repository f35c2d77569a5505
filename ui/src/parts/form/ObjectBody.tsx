import { useState } from "react";
import { Button, IconButton } from "@/parts/Button";
import type { Of } from "./Body";
import { FormField } from "./FormField";
import { initial } from "./initial";
import { isObject, own, type Schema } from "./schema";
import { shapeOf } from "./shape";
import { getAt, setValue } from "./state";
import { useFormContext } from "./use-form";

export function ObjectBody({ keys, shape, label, required, schema, top }: Of<"object">) {
  const { form } = useFormContext();
  const value = getAt(form.state.value, keys);
  const root = top || keys.length === 0;
  if (value === undefined && !root)
    return (
      <div>
        <Button size="small" kind="ghost" icon="i-plus" aria-label={`Add ${label}`} onClick={() => form.change((state) => setValue(state, keys, initial(schema, form.schema) ?? {}))}>Add</Button>
      </div>
    );
  const known = new Set(shape.properties.map(([name]) => name));
  const extra = isObject(value) ? Object.keys(value).filter((name) => !known.has(name)) : [];
  return (
    <div className={root ? "members" : "members boxed"}>
      {shape.properties.map(([name, property]) => (
        <FormField key={name} schema={property} keys={[...keys, name]} name={name} required={shape.required.includes(name)} />
      ))}
      {extra.map((name) => (
        <FormField
          key={`+${name}`}
          schema={shape.more ?? true}
          keys={[...keys, name]}
          name={name}
          required={false}
          keepEmpty
          end={<IconButton icon="i-x" size="small" kind="ghost" label={`Remove ${name}`} onClick={() => form.change((state) => setValue(state, [...keys, name], undefined))} />}
        />
      ))}
      {shape.more !== null && <AddMember label={label} taken={(name) => known.has(name) || own(value, name) !== undefined} onAdd={(name) => form.change((state) => setValue(state, [...keys, name], emptyOf(shape.more ?? true, form.schema)))} />}
      {!root && !required && (
        <div>
          <Button size="small" kind="ghost" icon="i-x" aria-label={`Remove ${label}`} onClick={() => form.change((state) => setValue(state, keys, undefined))}>Remove</Button>
        </div>
      )}
    </div>
  );
}

/** A new member must be something, or it would not be there. */
function emptyOf(schema: Schema, root: Schema): unknown {
  const first: Record<string, unknown> = { string: "", number: 0, boolean: false };
  return initial(schema, root) ?? first[shapeOf(schema, root).kind] ?? null;
}

function AddMember({ label, taken, onAdd }: { label: string; taken: (name: string) => boolean; onAdd: (name: string) => void }) {
  const [name, setName] = useState("");
  const off = name === "" ? "write its name first" : taken(name) ? "it is there already" : null;
  const add = () => {
    if (off) return;
    onAdd(name);
    setName("");
  };
  return (
    <div className="row addmember">
      <input
        className="input"
        aria-label={`Name of another member of ${label}`}
        placeholder="another member"
        value={name}
        spellCheck={false}
        onChange={(event) => setName(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          add();
        }}
      />
      <Button size="small" icon="i-plus" off={off} onClick={add}>Add</Button>
    </div>
  );
}
