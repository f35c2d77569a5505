import { bytes } from "@/lib/format";
import { pointer } from "@/lib/expression";
import type { Key } from "./schema";
import { getAt, setText } from "./state";
import { useFormContext, useIssues } from "./use-form";

const JSON_MOST = 500_000;

/** JSON text of the value at a place. */
export function RawText({ keys, label, id, describedBy, rows = 3 }: { keys: Key[]; label: string; id?: string; describedBy?: string; rows?: number }) {
  const { form } = useFormContext();
  const typed = form.state.texts.get(pointer(keys));
  const value = getAt(form.state.value, keys);
  const text = typed?.text ?? (value === undefined ? "" : JSON.stringify(value, null, 2));
  const bad = useIssues(keys);
  if (text.length > JSON_MOST) return <p className="muted">{bytes(text.length)} of JSON, too long for a field.</p>;
  return (
    <textarea
      id={id}
      className="input rawtext"
      spellCheck={false}
      aria-label={id ? undefined : `${label} as JSON`}
      aria-describedby={describedBy}
      aria-invalid={bad.length > 0 || undefined}
      rows={Math.max(rows, Math.min(24, text.split("\n").length))}
      value={text}
      placeholder="JSON"
      onChange={(event) => {
        const next = event.target.value;
        form.change((state) => setText(state, keys, next, "json"));
      }}
    />
  );
}
