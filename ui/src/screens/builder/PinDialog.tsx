import { useState } from "react";
import { ApiError } from "@/api/client";
import { filesQuery, queryClient } from "@/api/queries";
import { Field } from "@/parts/Field";
import { readFile, testFileOf, writeFile } from "./files";
import { applied, pinEdits } from "./requests";
import { ActionDialog } from "./StepDialogs";

interface Props {
  step: string;
  /** The composition's file; null while it is not saved. */
  file: string | null;
  composition: string | null;
  output: unknown;
  noWrite: string | null;
  onClose: () => void;
}

/** Keeps an output as a mock in the test file beside the composition. Only tests and runs with pinned outputs use it. */
export function PinDialog({ step, file, composition, output, noWrite, onClose }: Props) {
  const [text, setText] = useState(() => (output === undefined ? "{}" : JSON.stringify(output, null, 2)));
  const error = problemOf(text);
  const path = file ? testFileOf(file) : null;
  const pin = async (): Promise<string | null> => {
    if (!path || !composition) return "save the composition first";
    try {
      const before = await readFile(path).catch((why: unknown) => {
        if (why instanceof ApiError && why.status === 404) return null;
        throw why;
      });
      const edits = await pinEdits(before?.text ?? null, composition, step, JSON.parse(text) as unknown);
      await writeFile(path, applied(before?.text ?? "", edits), before?.hash ?? null);
      void queryClient.invalidateQueries({ queryKey: filesQuery.queryKey });
      return null;
    } catch (why) {
      return why instanceof Error ? why.message : String(why);
    }
  };
  return (
    <ActionDialog title={`Pin the output of ${step}`} action="Pin" off={noWrite ?? (path && composition ? null : "save the composition first") ?? error} onClose={onClose} onDo={pin}>
      <Field label="Output" type="JSON" error={error} help={path ? `Kept as a mock in ${path}. A run in production never uses it.` : undefined}>
        {({ id, describedBy }) => <textarea id={id} aria-describedby={describedBy} aria-invalid={error ? true : undefined} className="input" rows={12} spellCheck={false} data-autofocus value={text} onChange={(event) => setText(event.target.value)} />}
      </Field>
      <p className="muted">{output === undefined ? "The shown run has no output of this step: write one." : "This is the output of the shown run; you may change it."}</p>
    </ActionDialog>
  );
}

function problemOf(text: string): string | null {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : "not JSON";
  }
}
