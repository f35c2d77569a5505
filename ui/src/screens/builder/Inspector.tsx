import { useMemo, type ReactNode } from "react";
import { Button } from "@/parts/Button";
import { Icon } from "@/parts/Icon";
import { EffectMark, RollbackMark } from "@/parts/Marks";
import { Menu } from "@/parts/Menu";
import { SafeText, ToolName } from "@/parts/SafeText";
import { State } from "@/parts/State";
import { useBuilder, useChecked, useShown } from "./builder";
import { pinnedSteps, usePins } from "./pins";
import type { ShownRun } from "./run";
import { usePartOff } from "./RunDialog";
import { stepActions } from "./step-actions";
import { findStep, pathsById } from "./steps";
import { useUi } from "./ui";

/** The selected step: what can be done with it, and below that its parameters. */
export function Inspector({ run, children }: { run: ShownRun | null; children?: ReactNode }) {
  const builder = useBuilder();
  const ui = useUi();
  const selected = useShown((shown) => shown.selected);
  const steps = useChecked((checked) => checked.analysis?.steps);
  const step = useMemo(() => (selected ? findStep(steps ?? [], selected) : null), [steps, selected]);
  const actions = stepActions(builder, ui, selected, usePartOff());
  const path = useMemo(() => (selected ? pathsById(steps ?? []).get(selected) : undefined), [steps, selected]);
  const state = path ? run?.looks.get(path)?.state : undefined;
  const pins = usePins();
  const pinned = useMemo(() => selected !== null && pinnedSteps(pins).has(selected), [pins, selected]);
  if (!step) {
    return (
      <section className="b-step none" aria-label="Step" data-pane>
        <p className="muted">Select a step to see and change its parameters.</p>
      </section>
    );
  }
  const direct = actions.slice(0, 3);
  return (
    <section className="b-step" aria-label={`Step ${step.id}`} data-pane>
      <div className="b-step-h">
        <h2 className="ell"><SafeText text={step.id} most={80} /></h2>
        {step.tool ? <ToolName tool={step.tool} /> : <span className="muted">{step.kind}</span>}
        <EffectMark effect={step.effect} />
        <span className="wide-only row"><RollbackMark rollback={step.rollback} /></span>
        {step.rollback.kind === "call" && <span className="wide-only muted ell">by <SafeText text={step.rollback.tool} most={60} /></span>}
        {step.rollback.kind === "impossible" && step.rollback.reason && <span className="wide-only muted ell"><SafeText text={step.rollback.reason} most={80} /></span>}
        {state && <State state={state} />}
        {pinned && <span className="tag o-pinned" title="Runs and tests can take its output from the test file"><Icon name="i-pin" small />pinned</span>}
        <span className="grow" />
        {direct.map((one) => (
          <Button key={one.id} size="small" icon={one.icon} off={one.off} className={one.id === "to" ? undefined : "wide-only"} onClick={one.run}>{one.label}</Button>
        ))}
        <Menu
          label={`What can be done with ${step.id}`}
          trigger={<Button size="small" icon="i-dots" aria-label={`More for ${step.id}`} />}
          items={actions.map((one) => ({ label: one.label, icon: one.icon, hint: <kbd>{one.keys}</kbd>, off: one.off, onSelect: one.run }))}
        />
      </div>
      <div className="b-step-b">{children}</div>
    </section>
  );
}
