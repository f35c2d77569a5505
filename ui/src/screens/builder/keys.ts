// The keys of the builder. While text is typed only those with Ctrl, and function keys, are the page's.
import { useEffect } from "react";
import { announce } from "@/app/announce";
import { useCommands } from "@/app/commands";
import { useShortcuts, type Shortcuts } from "@/app/shortcuts";
import { useBuilder, useChecked, useShown } from "./builder";
import { goToFinding, quickFix } from "./fixes";
import { usePartOff, useRunOff } from "./RunDialog";
import type { Save } from "./save";
import { stepActions } from "./step-actions";
import { focusPane, nextPane, useUi } from "./ui";

interface Options {
  save: Save;
  onView: (view: "graph" | "outline") => void;
  onMenu: (at: { x: number; y: number }) => void;
}

/** A field that keeps its own history: a search, or a dialog. */
const ownHistory = (event: KeyboardEvent): boolean => {
  const target = event.composedPath()[0];
  return target instanceof HTMLElement && target.matches("input, textarea") && !target.closest(".b-step");
};

export function useKeys({ save, onView, onMenu }: Options): void {
  const builder = useBuilder();
  const ui = useUi();
  const step = useShown((shown) => shown.selected);
  const runOff = useRunOff();
  // What can be done with a step depends on the steps that are there.
  useChecked((checked) => checked.analysis?.steps);
  const actions = stepActions(builder, ui, step, usePartOff());
  const openMenu = () => {
    const node = document.querySelector(".plan-graph .sel")?.getBoundingClientRect();
    if (!step) return announce("Select a step first");
    onMenu(node ? { x: node.left + 24, y: node.top + 24 } : { x: 400, y: 200 });
  };
  const isOpen = () => document.querySelector("dialog[open]") !== null;
  const undo = (event: KeyboardEvent) => (ownHistory(event) || isOpen() ? false : builder.undo());
  const redo = (event: KeyboardEvent) => (ownHistory(event) || isOpen() ? false : builder.redo());
  const run = () => (runOff ? announce(runOff) : ui.setOpen({ dialog: "run" }));
  const keys: Shortcuts = {
    n: () => focusPane("tools"),
    r: run,
    "1": () => onView("graph"),
    "2": () => onView("outline"),
    "Ctrl+s": () => void save.save(),
    "Ctrl+z": undo,
    "Ctrl+Shift+Z": redo,
    "Ctrl+y": redo,
    "Ctrl+.": () => void quickFix(builder),
    "Ctrl+Enter": () => (isOpen() ? false : run()),
    Backspace: () => actions.find((one) => one.id === "remove")?.run(),
    ContextMenu: openMenu,
    "Shift+F10": openMenu,
    ...Object.fromEntries(actions.map((one) => [one.shortcut, one.run])),
  };
  useShortcuts(keys);
  useFunctionKeys({ F6: (event) => nextPane(event.shiftKey ? -1 : 1), F8: (event) => goToFinding(builder, event.shiftKey ? -1 : 1) });
  useCommands([
    { id: "save", group: "This composition", label: "Save", icon: "i-in", keys: "Ctrl S", off: save.off, run: () => void save.save() },
    { id: "run", group: "This composition", label: "Run…", icon: "i-play", keys: "R", off: runOff, run },
    { id: "add", group: "This composition", label: "Add a step", icon: "i-plus", keys: "N", run: () => focusPane("tools") },
    { id: "fix", group: "This composition", label: "Fix the finding here", icon: "i-warn", keys: "Ctrl .", run: () => void quickFix(builder) },
    { id: "words", group: "This composition", label: "Change by words…", icon: "i-words", run: () => ui.setOpen({ dialog: "words" }) },
    { id: "versions", group: "This composition", label: "Unsaved changes as a diff", icon: "i-cmp", run: () => ui.setOpen({ dialog: "versions" }) },
    ...actions.map(({ id, label, icon, keys: shown, off, run: act }) => ({ id: `step-${id}`, group: step ? `Step ${step}` : "Step", label, icon, keys: shown, off, run: act })),
  ]);
}

/** F keys also work while text is typed. */
function useFunctionKeys(keys: Record<string, (event: KeyboardEvent) => void>): void {
  useEffect(() => {
    const on = (event: KeyboardEvent) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      act(event);
    };
    window.addEventListener("keydown", on);
    return () => window.removeEventListener("keydown", on);
  });
}
