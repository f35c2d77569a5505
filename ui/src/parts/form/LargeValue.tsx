import { bytes } from "@/lib/format";
import { Button } from "@/parts/Button";
import { SafeText } from "@/parts/SafeText";
import type { Key } from "./schema";
import { setValue } from "./state";
import { useFormContext } from "./use-form";

/** A control with more text than this makes typing slow. */
const TEXT_MOST = 100_000;

export const isLarge = (value: unknown): value is string => typeof value === "string" && value.length > TEXT_MOST;

/** A text too long for a control: its beginning and its size. */
export function LargeValue({ keys, value, label }: { keys: Key[]; value: string; label: string }) {
  const { form } = useFormContext();
  return (
    <div className="row">
      <code className="ell"><SafeText text={value} most={120} /></code>
      <span className="muted nowrap">{bytes(value.length)}, too long for a field</span>
      <Button size="small" kind="ghost" icon="i-x" aria-label={`Remove ${label}`} onClick={() => form.change((state) => setValue(state, keys, undefined))}>Remove</Button>
    </div>
  );
}
