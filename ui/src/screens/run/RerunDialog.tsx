import { useEffect, useState } from "react";
import { outermost } from "@/lib/path";
import { Button } from "@/parts/Button";
import { Dialog } from "@/parts/Dialog";
import { Failure } from "@/parts/Failure";
import { Field } from "@/parts/Field";
import { SafeText } from "@/parts/SafeText";
import { useRunContext } from "./context";
import { wholeInput } from "./run-commands";

function parse(text: string): { value?: Record<string, unknown>; error: string | null } {
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value !== "object" || value === null || Array.isArray(value)) return { error: "The input is an object: { … }" };
    return { value: value as Record<string, unknown>, error: null };
  } catch (error) {
    return { error: error instanceof Error ? error.message : "not JSON" };
  }
}

/**
 * A re-run is a new run; the old one stays. From a step on, earlier steps keep their results. It starts at a step of the
 * composition itself: for a step inside a loop or a branch, at the step that holds it.
 */
export function RerunDialog({ path, onClose }: { path: string | null; onClose: () => void }) {
  const from = path ? outermost(path) : null;
  const { model: { run }, actions } = useRunContext();
  const [text, setText] = useState<string | null>(null);
  const [edited, setEdited] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  useEffect(() => {
    wholeInput(run).then((input) => setText(JSON.stringify(input ?? {}, null, 2)), setFailure);
    // The input of a run never changes.
    // eslint-disable-next-line
  }, [run.run_id]);
  const parsed = text === null ? { error: null } : parse(text);
  const start = () => {
    if (parsed.error) return;
    actions.rerun.mutate({ ...(from ? { from } : {}), ...(edited && "value" in parsed && parsed.value ? { input: parsed.value } : {}) });
  };
  return (
    <Dialog
      title={from ? `Re-run from ${from}` : "Re-run"}
      open
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Keep as it is</Button>
          <Button kind="primary" icon="i-again" busy={actions.rerun.busy} off={actions.rerun.off ?? (text === null ? "the input is loading" : parsed.error)} onClick={start}>
            {from ? (from === path ? "Re-run from here" : `Re-run from ${from}`) : "Re-run"}
          </Button>
        </>
      }
    >
      {from ? (
        <p>
          Starts a new run at <code><SafeText text={from} /></code>. Earlier steps keep their results from this run; the step and everything after it is called again.
          {path !== from && <> A run cannot start at <code><SafeText text={path ?? ""} /></code>, which is inside <code><SafeText text={from} /></code>: all of it is called again.</>}
        </p>
      ) : (
        <p>Starts a new run of the same plan. {run.part ? "Every step of the composition is called, also those that this run did not call." : "Every step is called again."}</p>
      )}
      {failure || actions.rerun.error ? <Failure error={failure ?? actions.rerun.error} /> : null}
      <Field label="Input" type="object" error={parsed.error} help={edited ? "Edited: earlier steps still keep the results of the old input." : "As this run had it."}>
        {({ id, describedBy }) => (
          <textarea
            id={id}
            aria-describedby={describedBy}
            aria-invalid={parsed.error ? true : undefined}
            className="input"
            rows={12}
            spellCheck={false}
            value={text ?? ""}
            onChange={(event) => {
              setText(event.target.value);
              setEdited(true);
            }}
          />
        )}
      </Field>
    </Dialog>
  );
}
