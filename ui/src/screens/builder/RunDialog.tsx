import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { useShortcuts } from "@/app/shortcuts";
import { Button } from "@/parts/Button";
import { Dialog } from "@/parts/Dialog";
import { DryRun } from "@/parts/DryRun";
import { Failure } from "@/parts/Failure";
import { Field } from "@/parts/Field";
import { SchemaForm } from "@/parts/form/SchemaForm";
import { useForm } from "@/parts/form/use-form";
import { SafeText } from "@/parts/SafeText";
import { filesQuery } from "@/api/queries";
import { useChecked, useShown, useText } from "./builder";
import { testFileOf } from "./files";
import { useLastInput, useStart } from "./run";

interface Props {
  until?: string | undefined;
  only?: string | undefined;
  onClose: () => void;
}

/** Why the text cannot run now, or null. */
export function useRunOff(): string | null {
  const run = useDenied("run");
  const compose = useDenied("compose");
  const dirty = useText((now) => now.dirty);
  const valid = useChecked((checked) => checked.analysis?.valid ?? true);
  return run ?? (valid ? null : "the text has errors") ?? (dirty && compose ? `${compose}, because the text is not saved` : null);
}

/** The input, as the last run had it; then run, or see what a run would do. */
export function RunDialog(props: Props) {
  const input = useLastInput();
  const hasRun = useShown((shown) => shown.run !== null);
  return <Inner key={input ? "last" : "first"} {...props} last={input} hasRun={hasRun} />;
}

/** A constant: what is picked from a store must stay the same object. */
const ANY_INPUT = { type: "object" };

/** The input of a composition that says nothing about it is an object, too. */
const inputSchema = (schema: unknown): unknown => (typeof schema === "object" && schema !== null && Object.keys(schema).length > 0 ? schema : ANY_INPUT);

function Inner({ until, only, onClose, last, hasRun }: Props & { last: Record<string, unknown> | undefined; hasRun: boolean }) {
  const schema = useChecked((checked) => inputSchema(checked.analysis?.plan?.inputs ?? checked.analysis?.inputs));
  const form = useForm(schema, last);
  const off = useRunOff();
  const [mocks, setMocks] = useState("");
  const start = useStart((_, ask) => !ask.dry && onClose());
  const go = (dry: boolean) => {
    if (off || start.isPending) return;
    const filled = form.submit();
    if (!filled) return announce("Something is missing or wrong in the input");
    start.mutate({ input: (filled.value ?? {}) as Record<string, unknown>, dry, until, only, mocks: mocks || undefined });
  };
  const noCache = only && !hasRun ? "there is no run whose values it could use: run the composition first" : null;
  useShortcuts({ "Ctrl+Enter": () => (noCache ? announce(noCache) : go(false)) });
  const title = only ? `Run only ${only}` : until ? `Run to ${until}` : "Run";
  return (
    <Dialog
      title={title}
      open
      wide
      onClose={onClose}
      footer={
        <>
          <span className="muted grow">{last ? "The input is that of the last run." : "A dry run calls nothing that changes anything."}</span>
          <Button kind="ghost" onClick={onClose}>Close</Button>
          {!only && <Button icon="i-nocall" off={off} busy={start.isPending && start.variables.dry} onClick={() => go(true)}>Dry run</Button>}
          <Button kind="primary" icon="i-play" keys="Ctrl Enter" off={off ?? noCache} busy={start.isPending && !start.variables.dry} onClick={() => go(false)}>{title}</Button>
        </>
      }
    >
      <div className="b-run">
        {start.isError && <Failure error={start.error} />}
        {until && <p>Runs <code><SafeText text={until} /></code> and every step that it needs.</p>}
        {only && <p>Calls only <code><SafeText text={only} /></code>. What it reads comes from the shown run.</p>}
        <SchemaForm form={form} label="Input" json={false} />
        <Mocks value={mocks} onChange={setMocks} />
        {start.data && start.variables?.dry && <DryRun result={start.data} />}
      </div>
    </Dialog>
  );
}

/** Pinned outputs answer in place of the tools. */
function Mocks({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const path = useShown((shown) => shown.file.path);
  const files = useQuery(filesQuery).data?.files ?? [];
  const own = path ? testFileOf(path) : null;
  const tests = files.filter((one) => one.kind === "test").sort((a, b) => Number(b.path === own) - Number(a.path === own));
  if (tests.length === 0) return null;
  return (
    <Field label="Outputs" help="Pinned outputs are in test files. A run with them calls no tool that is pinned.">
      {({ id, describedBy }) => (
        <select id={id} aria-describedby={describedBy} className="input" value={value} onChange={(event) => onChange(event.target.value)}>
          <option value="">from the tools</option>
          {tests.slice(0, 50).map((one) => <option key={one.path} value={one.path}>{`pinned in ${one.path}`}</option>)}
        </select>
      )}
    </Field>
  );
}
