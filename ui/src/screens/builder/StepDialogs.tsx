import { useState, type FormEvent, type ReactNode } from "react";
import { Button } from "@/parts/Button";
import { Dialog } from "@/parts/Dialog";
import { Field } from "@/parts/Field";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { useBuilder } from "./builder";
import { writeFile } from "./files";
import { KINDS, WRAPPERS, type Wrapper } from "./kinds";
import type { Edit } from "./model";
import { freeId, siblings } from "./steps";
import { containerOf } from "./wrap";

const ID = /^[A-Za-z0-9_$-]+$/;
const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;

interface FormProps {
  title: string;
  action: string;
  /** Why it cannot be done now. */
  off: string | null;
  onClose: () => void;
  /** Resolves with why it was refused, or null. */
  onDo: () => Promise<string | null>;
  children: ReactNode;
}

/** A dialog that does one thing: Enter does it, a refusal stays in it. */
export function ActionDialog({ title, action, off, onClose, onDo, children }: FormProps) {
  const builder = useBuilder();
  const [refusal, setRefusal] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const send = (event: FormEvent) => {
    event.preventDefault();
    if (off || busy) return;
    setBusy(true);
    void onDo().then((why) => {
      setBusy(false);
      setRefusal(why);
      // It is said here, so the footer need not.
      builder.refuse(null);
      if (why === null) onClose();
    });
  };
  return (
    <Dialog title={title} open onClose={onClose}>
      <form className="b-form" onSubmit={send} onKeyDown={(event) => event.key === "Enter" && event.target instanceof HTMLSelectElement && send(event)}>
        {children}
        {refusal && <p role="alert" className="st s-failed"><SafeText text={refusal} most={600} /></p>}
        <div className="row b-form-f">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" off={off} busy={busy}>{action}</Button>
        </div>
      </form>
    </Dialog>
  );
}

interface StepProps {
  step: string;
  onClose: () => void;
}

/** One line of text, focused. */
function TextField({ label, value, onChange, help, error }: { label: string; value: string; onChange: (value: string) => void; help?: string; error?: string | null }) {
  return (
    <Field label={label} help={help} error={error ?? null}>
      {({ id, describedBy }) => <input id={id} aria-describedby={describedBy} aria-invalid={error ? true : undefined} className="input" data-autofocus spellCheck={false} value={value} onFocus={(event) => event.target.select()} onChange={(event) => onChange(event.target.value)} />}
    </Field>
  );
}

export function RenameDialog({ step, onClose }: StepProps) {
  const builder = useBuilder();
  const [to, setTo] = useState(step);
  const error = !ID.test(to) ? "letters, digits, _, - and $" : to !== step && builder.takenIds().has(to) ? "another step has this id" : null;
  return (
    <ActionDialog title={`Rename ${step}`} action="Rename" off={error ?? (to === step ? "it has this id" : null)} onClose={onClose} onDo={() => builder.edit({ kind: "rename_step", step, to }, `Renamed ${step} to ${to}`)}>
      <TextField label="Id" value={to} onChange={setTo} error={error} help="Every reference to it changes with it." />
    </ActionDialog>
  );
}

/** Steps of one list around a step, to choose from. */
function StepChoice({ step, chosen, onChange }: { step: string; chosen: readonly string[]; onChange: (chosen: string[]) => void }) {
  const all = siblings(useBuilder().steps, step).map((one) => one.id);
  if (all.length < 2) return null;
  return (
    <fieldset className="b-choice">
      <legend>Steps</legend>
      {all.map((id) => (
        <label key={id} className="row">
          <input type="checkbox" checked={chosen.includes(id)} onChange={(event) => onChange(all.filter((one) => (one === id ? event.target.checked : chosen.includes(one))))} />
          <SafeText text={id} most={80} />
        </label>
      ))}
    </fieldset>
  );
}

const ASKS: Record<Wrapper, { label: string; help: string } | null> = {
  loop: { label: "Over", help: "The array, such as {{ pulls.items }}. Inside, each item is {{ item }}." },
  choose: { label: "When", help: "The condition of the case, such as {{ pulls.items | length > 0 }}." },
  repeat: { label: "Until", help: "The condition that ends it. At most 10 rounds, which you can change." },
  parallel: null,
};

export function WrapDialog({ step, kind: first, onClose }: StepProps & { kind: Wrapper }) {
  const builder = useBuilder();
  const [kind, setKind] = useState<Wrapper>(first);
  const [steps, setSteps] = useState([step]);
  const [over, setOver] = useState("");
  const [id, setId] = useState<string | null>(null);
  const name = id ?? freeId(KINDS.find((one) => one.kind === kind)?.id ?? kind, builder.takenIds());
  const asks = ASKS[kind];
  const error = ID.test(name) ? (builder.takenIds().has(name) ? "another step has this id" : null) : "letters, digits, _, - and $";
  return (
    <ActionDialog title={`Wrap ${step}`} action="Wrap" off={error ?? (steps.length === 0 ? "choose a step" : null)} onClose={onClose} onDo={() => builder.edit({ kind: "wrap", steps, id: name, container: containerOf(kind, over) }, `Wrapped ${steps.join(", ")} in ${kind} ${name}`)}>
      <Segmented label="In" value={kind} options={WRAPPERS.map((value) => ({ value, label: value }))} onChange={setKind} />
      {asks && <TextField label={asks.label} value={over} onChange={setOver} help={asks.help} />}
      <Field label="Id" error={error}>{({ id: field }) => <input id={field} className="input" spellCheck={false} value={name} onChange={(event) => setId(event.target.value)} />}</Field>
      <StepChoice step={step} chosen={steps} onChange={setSteps} />
    </ActionDialog>
  );
}

export function ExtractDialog({ step, onClose, folder, noWrite }: StepProps & { folder: string; noWrite: string | null }) {
  const builder = useBuilder();
  const [steps, setSteps] = useState([step]);
  const [name, setName] = useState(step.toLowerCase().replaceAll(/[^a-z0-9_-]/g, "-"));
  const error = NAME.test(name) ? null : "lower-case letters, digits, _ and -";
  const path = `${folder ? `${folder}/` : ""}${name}.yaml`;
  const extract = async (): Promise<string | null> => {
    const edited = await builder.editWithResult({ kind: "extract", steps, name }, `Extracted ${steps.join(", ")} into ${name}`);
    if (typeof edited === "string") return edited;
    if (!edited.extracted) return null;
    try {
      await writeFile(path, edited.extracted.text, null);
      builder.analyzer.refresh();
      return null;
    } catch (error) {
      // Without the file the call would name nothing.
      builder.undo();
      return error instanceof Error ? error.message : String(error);
    }
  };
  return (
    <ActionDialog title={`Extract ${step}`} action="Extract" off={noWrite ?? error ?? (steps.length === 0 ? "choose a step" : null)} onClose={onClose} onDo={extract}>
      <TextField label="Name of the new composition" value={name} onChange={setName} error={error} help={`Writes ${path} now. This text then calls it.`} />
      <StepChoice step={step} chosen={steps} onChange={setSteps} />
    </ActionDialog>
  );
}

export function KindDialog({ step, onClose }: StepProps) {
  const builder = useBuilder();
  const [kind, setKind] = useState<string>("loop");
  const [tool, setTool] = useState("");
  const of = KINDS.find((one) => one.kind === kind);
  const to = kind === "tool" ? { tool, parameters: {} } : (of?.step ?? {});
  const edit: Edit = { kind: "change_kind", step, to };
  return (
    <ActionDialog title={`Change the kind of ${step}`} action="Change" off={kind === "tool" && !tool.trim() ? "name a tool" : null} onClose={onClose} onDo={() => builder.edit(edit, `${step} is a ${kind} now`)}>
      <Field label="Kind" help={of?.words ?? "calls a tool, or another composition"}>
        {({ id, describedBy }) => (
          <select id={id} aria-describedby={describedBy} className="input" data-autofocus value={kind} onChange={(event) => setKind(event.target.value)}>
            {["tool", ...KINDS.map((one) => one.kind)].map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        )}
      </Field>
      {kind === "tool" && <TextField label="Tool" value={tool} onChange={setTool} help="Such as builtin:echo." />}
      <p className="muted">Fields that only the old kind has are removed. The steps inside a container move along.</p>
    </ActionDialog>
  );
}
