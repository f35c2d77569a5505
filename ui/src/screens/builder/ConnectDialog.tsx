import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { toolsQuery } from "@/api/queries";
import { pointer } from "@/lib/expression";
import { Field } from "@/parts/Field";
import { useBuilder, useChecked } from "./builder";
import { fieldsOfSchema, fieldsOfValue, parametersOf } from "./connect";
import type { ShownRun } from "./run";
import { ActionDialog } from "./StepDialogs";
import { findStep, pathsById } from "./steps";

const WAIT = "";

interface Props {
  from: string;
  to: string | null;
  run: ShownRun | null;
  onClose: () => void;
}

/** Connects two steps: one waits for the other, or a parameter reads a field of its value. */
export function ConnectDialog({ from, to: given, run, onClose }: Props) {
  const builder = useBuilder();
  const steps = useChecked((checked) => checked.analysis?.steps);
  const tools = useQuery(toolsQuery).data?.tools;
  const paths = useMemo(() => pathsById(steps ?? []), [steps]);
  const targets = useMemo(() => [...paths.keys()].filter((id) => id !== from), [paths, from]);
  const [chosen, setTo] = useState(given ?? targets[targets.indexOf(from) + 1] ?? targets[0] ?? "");
  const [parameter, setParameter] = useState<string>(WAIT);
  const [path, setPath] = useState("");
  const toolOf = (id: string) => tools?.find((one) => one.id === findStep(steps ?? [], id)?.tool);
  const parameters = parametersOf(toolOf(chosen)?.input_schema);
  const output = run?.output(paths.get(from) ?? from);
  const fields = output === undefined || output === null ? fieldsOfSchema(toolOf(from)?.output_schema) : fieldsOfValue(output);
  const reference = parameter === WAIT ? null : { path, field: pointer(["parameters", parameter]) };
  const what = reference ? `${chosen} reads ${from}${path ? `.${path}` : ""}` : `${chosen} waits for ${from}`;
  return (
    <ActionDialog title={`Connect ${from}`} action="Connect" off={chosen ? null : "there is no other step"} onClose={onClose} onDo={() => builder.edit({ kind: "connect", from, to: chosen, ...(reference ? { reference } : {}) }, what)}>
      <Field label="To">
        {({ id }) => (
          <select id={id} className="input" data-autofocus value={chosen} onChange={(event) => (setTo(event.target.value), setParameter(WAIT))}>
            {targets.map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        )}
      </Field>
      <Field label="How" help={reference ? "A reference is written into this parameter." : "It is written into depends_on."}>
        {({ id, describedBy }) => (
          <select id={id} aria-describedby={describedBy} className="input" value={parameter} onChange={(event) => setParameter(event.target.value)}>
            <option value={WAIT}>only waits for it</option>
            {parameters.map((one) => <option key={one} value={one}>{`parameter ${one} reads it`}</option>)}
          </select>
        )}
      </Field>
      {reference && (
        <Field label="Field" help={fields.length > 0 ? (output === undefined || output === null ? "From the tool's schema. Empty means the whole value." : "From the shown run. Empty means the whole value.") : "Such as items[0].title. Empty means the whole value."}>
          {({ id, describedBy }) => (
            <>
              <input id={id} aria-describedby={describedBy} className="input" list={`${id}-fields`} spellCheck={false} value={path} onChange={(event) => setPath(event.target.value)} />
              <datalist id={`${id}-fields`}>{fields.map((one) => <option key={one} value={one} />)}</datalist>
            </>
          )}
        </Field>
      )}
    </ActionDialog>
  );
}
