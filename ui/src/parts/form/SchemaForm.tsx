import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { plural } from "@/lib/format";
import "./form.css";
import { Body } from "./Body";
import { RawText } from "./RawText";
import { FormContext, type Form } from "./use-form";

interface Props {
  form: Form;
  /** What the form is for: its accessible name. */
  label: string;
  /** The whole value as JSON text. */
  json?: boolean;
}

/** A form drawn from a JSON Schema. What cannot be drawn is JSON text, and says why. */
export function SchemaForm({ form, label, json }: Props) {
  const { shape } = form;
  const raw = json || shape.kind === "raw";
  const empty = shape.kind === "object" && shape.properties.length === 0 && shape.more === null;
  return (
    <FormContext value={{ form, name: label }}>
      <div className="schemaform" role="group" aria-label={label}>
        {raw ? <RawText keys={[]} label={label} rows={10} /> : empty ? <p className="muted">It takes no arguments.</p> : <Body schema={form.schema} keys={[]} shape={shape} label={label} required level={0} />}
        {!json && shape.kind === "raw" && <p className="muted">Shown as JSON: {shape.why}.</p>}
        <AllIssues form={form} />
      </div>
    </FormContext>
  );
}

/** After a try: how much is wrong, and what stands nowhere else. */
function AllIssues({ form }: { form: Form }) {
  if (!form.state.showAll || form.issues.length === 0) return null;
  return (
    <div className="help bad" role="alert">
      <Icon name="s-failed" small />
      <span>
        {plural(form.issues.length, "problem")}: <SafeText text={form.issues.slice(0, 5).map((issue) => `${issue.at.slice(1).replaceAll("/", " › ") || "the value"} ${issue.message}`).join("; ")} most={600} />
        {form.issues.length > 5 && " …"}
      </span>
    </div>
  );
}
