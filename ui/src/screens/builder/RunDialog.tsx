import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { useShortcuts } from "@/app/shortcuts";
import { Button } from "@/parts/Button";
import { Dialog } from "@/parts/Dialog";
import { DryRun } from "@/parts/DryRun";
import { Failure } from "@/parts/Failure";
import { SchemaForm } from "@/parts/form/SchemaForm";
import { useForm } from "@/parts/form/use-form";
import { useChecked, useText } from "./builder";
import { useLastInput, useStart } from "./run";

interface Props {
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
  return <Inner key={input ? "last" : "first"} {...props} last={input} />;
}

/** A constant: what is picked from a store must stay the same object. */
const ANY_INPUT = { type: "object" };

/** The input of a composition that says nothing about it is an object, too. */
const inputSchema = (schema: unknown): unknown => (typeof schema === "object" && schema !== null && Object.keys(schema).length > 0 ? schema : ANY_INPUT);

function Inner({ onClose, last }: Props & { last: Record<string, unknown> | undefined }) {
  const schema = useChecked((checked) => inputSchema(checked.analysis?.plan?.inputs ?? checked.analysis?.inputs));
  const form = useForm(schema, last);
  const off = useRunOff();
  const start = useStart((_, ask) => !ask.dry && onClose());
  const go = (dry: boolean) => {
    if (off || start.isPending) return;
    const filled = form.submit();
    if (!filled) return announce("Something is missing or wrong in the input");
    start.mutate({ input: (filled.value ?? {}) as Record<string, unknown>, dry });
  };
  useShortcuts({ "Ctrl+Enter": () => go(false) });
  return (
    <Dialog
      title="Run"
      open
      wide
      onClose={onClose}
      footer={
        <>
          <span className="muted grow">{last ? "The input is that of the last run." : "A dry run calls nothing that changes anything."}</span>
          <Button kind="ghost" onClick={onClose}>Close</Button>
          <Button icon="i-nocall" off={off} busy={start.isPending && start.variables.dry} onClick={() => go(true)}>Dry run</Button>
          <Button kind="primary" icon="i-play" keys="Ctrl Enter" off={off} busy={start.isPending && !start.variables.dry} onClick={() => go(false)}>Run</Button>
        </>
      }
    >
      <div className="b-run">
        {start.isError && <Failure error={start.error} />}
        <SchemaForm form={form} label="Input" json={false} />
        {start.data && start.variables?.dry && <DryRun result={start.data} />}
      </div>
    </Dialog>
  );
}
