import { useMemo, useState } from "react";
import type { PlanStepView } from "@/api/types";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { useShortcuts } from "@/app/shortcuts";
import { shortId } from "@/lib/format";
import { plainText } from "@/lib/safe-text";
import { Button } from "@/parts/Button";
import { Dialog } from "@/parts/Dialog";
import { DryRun } from "@/parts/DryRun";
import { Failure } from "@/parts/Failure";
import { SchemaForm } from "@/parts/form/SchemaForm";
import { useForm } from "@/parts/form/use-form";
import { useChecked, useShown, useText } from "./builder";
import { PartSteps, PinChoice } from "./RunParts";
import { partOf, type Part } from "./part";
import { usePins } from "./pins";
import { useLastInput, useStart, type Ask } from "./run";

interface Props {
  /** A part of it; without one, the whole composition. */
  part?: Part | undefined;
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

/** Why a part of it cannot run now, or null: a part is another composition than the one that is served. */
export function usePartOff(): string | null {
  const run = useRunOff();
  const compose = useDenied("compose");
  return run ?? (compose ? `${compose}, because a part of a composition is another one` : null);
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

function Inner({ part, onClose, last }: Props & { last: Record<string, unknown> | undefined }) {
  const schema = useChecked((checked) => inputSchema(checked.analysis?.plan?.inputs ?? checked.analysis?.inputs));
  const form = useForm(schema, last);
  const run = useShown((shown) => shown.run);
  const pins = useUsedPins(part);
  const [runOff, partOff] = [useRunOff(), usePartOff()];
  const isOnly = part?.kind === "only";
  const off = part || pins.used.size > 0 ? (partOff ?? (isOnly && run === null ? "there is no run whose values it could take" : null)) : runOff;
  const start = useStart((_, ask) => !ask.dry && onClose());
  const go = (dry: boolean) => {
    if ((dry ? runOff : off) || start.isPending) return;
    const filled = isOnly ? { value: {} } : form.submit();
    if (!filled) return announce("Something is missing or wrong in the input");
    start.mutate({ input: (filled.value ?? {}) as Record<string, unknown>, dry, pinned: dry ? new Map() : pins.used, ...askOf(part, run) });
  };
  useShortcuts({ "Ctrl+Enter": () => go(false) });
  const [title, action] = part ? (isOnly ? [`Run only ${plainText(part.step)}`, "Run it"] : [`Run to ${plainText(part.step)}`, "Run to here"]) : ["Run", "Run"];
  return (
    <Dialog
      title={title}
      open
      wide
      onClose={onClose}
      footer={
        <>
          <span className="muted grow">{hint(part, last !== undefined)}</span>
          <Button kind="ghost" onClick={onClose}>Close</Button>
          {!part && <Button icon="i-nocall" off={runOff ?? (pins.used.size > 0 ? "a dry run calls nothing, so it uses no pinned output" : null)} busy={start.isPending && start.variables.dry} onClick={() => go(true)}>Dry run</Button>}
          <Button kind="primary" data-autofocus={part ? true : undefined} icon={part ? (isOnly ? "i-one" : "i-to") : "i-play"} keys="Ctrl Enter" off={off} busy={start.isPending && !start.variables.dry} onClick={() => go(false)}>{action}</Button>
        </>
      }
    >
      <div className="b-run">
        {start.isError && <Failure error={start.error} />}
        {part && <PartSteps steps={pins.performed} inner={part.inner} only={isOnly ? (run && shortId(run)) : null} />}
        {!isOnly && <SchemaForm form={form} label="Input" json={false} />}
        <PinChoice {...pins} />
        {start.data && start.variables?.dry && <DryRun result={start.data} />}
      </div>
    </Dialog>
  );
}

const askOf = (part: Props["part"], run: string | null): Pick<Ask, "part"> => (!part ? {} : part.kind === "until" ? { part: { until: part.step } } : { part: { only: part.step, run: run ?? "" } });

function hint(part: Props["part"], isLast: boolean): string {
  if (part?.kind === "only") return "Input and values are those of the shown run.";
  if (isLast) return "The input is that of the last run.";
  return part ? "" : "A dry run calls nothing that changes anything.";
}

/** The pinned outputs that a run can take, and those that it takes: in a run of a part all, in a whole run none. */
function useUsedPins(part: Props["part"]) {
  const pins = usePins();
  const steps = useChecked((checked) => checked.analysis?.steps) ?? NO_STEPS;
  const [chosen, setChosen] = useState<ReadonlyMap<string, boolean>>(new Map());
  // Runs take those of outermost steps; inside of a step they hold for tests.
  const outputs = useMemo(() => [...(pins?.outputs ?? [])].filter(([name]) => name !== part?.step && steps.some((step) => step.id === name)), [pins, steps, part?.step]);
  const wanted = new Map(outputs.filter(([name]) => chosen.get(name) ?? part !== undefined));
  const only = part?.kind === "only" ? steps.filter((step) => step.id === part.step) : null;
  // A step that runs alone reads only what it names itself.
  const { performed, taken } = partOf(only ? steps.filter((step) => step.id === part?.step || only[0]?.needs.includes(step.id) || (step.output_key && only[0]?.needs.includes(step.output_key))) : steps, part?.step ?? "", new Set(wanted.keys()));
  return {
    file: pins?.file ?? "",
    outputs,
    used: part ? new Map([...wanted].filter(([name]) => taken.has(name))) : wanted,
    wanted,
    performed: only ?? performed,
    onChange: (name: string, use: boolean) => setChosen((now) => new Map(now).set(name, use)),
  };
}

const NO_STEPS: readonly PlanStepView[] = [];
