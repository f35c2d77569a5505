// What is open over the builder, and what each pane needs of the others.
import { createContext, useContext } from "react";
import type { Edit, Place } from "./model";
import type { NamedPlace } from "./places";
import type { Conflict } from "./files";
import type { Wrapper } from "./kinds";
import type { Part } from "./part";

export type Open =
  | { dialog: "rename" | "extract" | "kind" | "pin"; step: string }
  | { dialog: "wrap"; step: string; kind: Wrapper }
  | { dialog: "connect"; from: string; to: string | null }
  | { dialog: "run"; part?: Part }
  | { dialog: "save-as" | "rename-file" | "delete-file" | "versions" | "words" }
  | { dialog: "conflict"; conflict: Conflict };

/** A step on its way to a place. */
export interface Placing {
  what: string;
  /** The step that moves, or null for a new one. */
  moves: string | null;
  edit: (place: Place) => Edit;
}

export interface Ui {
  open: Open | null;
  setOpen: (open: Open | null) => void;
  placing: Placing | null;
  setPlacing: (placing: Placing | null) => void;
  /** The place that keys or a drag point at. */
  target: NamedPlace | null;
  setTarget: (target: NamedPlace | null) => void;
}

export const UiCtx = createContext<Ui | null>(null);

export function useUi(): Ui {
  const ui = useContext(UiCtx);
  if (!ui) throw new Error("outside of the builder");
  return ui;
}

/** Puts the focus into a pane: `tools`, `graph`, `text`, `step`. */
export function focusPane(pane: "tools" | "graph" | "text" | "step"): void {
  const box = document.querySelector<HTMLElement>(`.b-${pane}`);
  if (pane === "tools") return box?.querySelector<HTMLElement>("input")?.focus();
  if (pane === "graph") return (box?.querySelector<HTMLElement>(".react-flow__node:has(.sel)") ?? box?.querySelector<HTMLElement>(".react-flow__node[tabindex='0'], .virtual, button"))?.focus();
  if (pane === "text") return box?.querySelector<HTMLElement>(".b-editor")?.shadowRoot?.querySelector<HTMLElement>(".cm-content")?.focus();
  (box?.querySelector<HTMLElement>("input, textarea, .cm-content, [role=textbox]") ?? box?.querySelector<HTMLElement>("button"))?.focus();
}

const PANES = ["tools", "graph", "text", "step"] as const;

/** `F6`: from pane to pane. */
export function nextPane(by: 1 | -1): void {
  const here = PANES.findIndex((pane) => document.querySelector(`.b-${pane}`)?.contains(document.activeElement));
  focusPane(PANES[(here + by + PANES.length) % PANES.length] ?? "graph");
}
