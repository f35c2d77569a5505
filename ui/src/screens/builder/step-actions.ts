// What can be done with a step: the same list for its menu, for keys and for the palette.
import { announce } from "@/app/announce";
import type { Builder } from "./builder";
import { idOf, pathsById, siblings } from "./steps";
import { outermostOf, type PartKind } from "./part";
import type { Ui } from "./ui";
import { freeId } from "./steps";

export interface StepAction {
  id: string;
  label: string;
  icon: string;
  keys: string;
  /** As `useShortcuts` names it. */
  shortcut: string;
  off: string | null;
  run: () => void;
}

/** `runOff` says why a part of the composition cannot run now. */
export function stepActions(builder: Builder, ui: Ui, step: string | null, runOff: string | null): StepAction[] {
  const paths = pathsById(builder.steps);
  const none = step === null ? "select a step first" : paths.has(step) ? null : "it is not in the text any more";
  const act = (id: string, label: string, icon: string, keys: string, shortcut: string, run: (step: string) => void, off: string | null = null): StepAction => ({
    id, label, icon, keys, shortcut, off: none ?? off, run: () => {
      if (step !== null && !(none ?? off)) run(step);
      else announce(none ?? off ?? "");
    },
  });
  const part = (kind: PartKind) => (one: string) => {
    const outer = outermostOf(paths, one);
    ui.setOpen({ dialog: "run", part: { kind, step: outer, inner: outer === one ? null : one } });
  };
  return [
    act("to", "Run to here", "i-to", "T", "t", part("until"), runOff),
    act("only", "Run only this step", "i-one", "Y", "y", part("only"), runOff ?? (builder.snapshot().run === null ? "there is no run whose values it could take: run to here first" : null)),
    act("pin", "Pin output", "i-pin", "P", "p", (one) => ui.setOpen({ dialog: "pin", step: one })),
    act("connect", "Connect to…", "i-link", "E", "e", (one) => ui.setOpen({ dialog: "connect", from: one, to: null })),
    act("rename", "Rename…", "i-words", "F2", "F2", (one) => ui.setOpen({ dialog: "rename", step: one })),
    act("duplicate", "Duplicate", "i-copy", "D", "d", (one) => void builder.edit({ kind: "duplicate_step", step: one, id: freeId(one, builder.takenIds()) }, `Duplicated ${one}`)),
    act("move", "Move…", "i-right", "M", "m", (one) => ui.setPlacing({ what: one, moves: one, edit: (place) => ({ kind: "move_step", step: one, place }) })),
    act("wrap", "Wrap…", "i-loop", "W", "w", (one) => ui.setOpen({ dialog: "wrap", step: one, kind: "loop" })),
    act("extract", "Extract into a composition…", "i-out", "Shift X", "Shift+X", (one) => ui.setOpen({ dialog: "extract", step: one })),
    act("kind", "Change kind…", "i-choose", "K", "k", (one) => ui.setOpen({ dialog: "kind", step: one })),
    act("remove", "Remove", "i-x", "Delete", "Delete", (one) => remove(builder, one)),
  ];
}

/** Removes a step, and selects its neighbour, so that the keys go on from there. */
function remove(builder: Builder, step: string): void {
  const around = siblings(builder.steps, step);
  const at = around.findIndex((one) => one.id === step);
  const next = around[at + 1] ?? around[at - 1];
  const parent = pathsById(builder.steps).get(step)?.split("/").at(-2) ?? null;
  void builder.edit({ kind: "remove_step", step }, `Removed ${step}. Ctrl Z brings it back.`).then((refusal) => {
    if (refusal === null) builder.select(next?.id ?? (parent ? idOf(parent) : null));
  });
}
