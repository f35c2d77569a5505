// What the parts of the builder share: texts, edits, findings, and what a part gets to work with.
//
// Positions are UTF-16 offsets from the beginning of the text, as CodeMirror and the server count them.
import type { DiagnosticView, PlanStepView, PlanView } from "@/api/types";

/** Replaces `start..end` of the text that was sent. A list is sorted and does not overlap. */
export interface TextEdit {
  start: number;
  end: number;
  text: string;
}

/** Where a step goes. `body` names a list of a step with several: a branch or a case by its number, or `otherwise`. */
export type Place =
  | { at: "before" | "after"; step: string }
  | { at: "first_in" | "last_in"; step?: string; body?: string };

/** The step that is put around others, as a composition writes it. */
export type Container =
  | { loop: { over: unknown; as?: string } }
  | { parallel: { wait_for?: string } }
  | { choose: { when: unknown } }
  | { repeat: { until: unknown; max_iterations: number } };

/** One change of the graph, as the server takes it (`POST /api/v1/language/edit`). Steps are named by their ids. */
export type Edit =
  | { kind: "add_step"; step: Record<string, unknown>; place: Place }
  | { kind: "remove_step"; step: string }
  | { kind: "rename_step"; step: string; to: string }
  | { kind: "move_step"; step: string; place: Place }
  | { kind: "duplicate_step"; step: string; id?: string | null }
  | { kind: "set_field"; step?: string | null; field: string; value: unknown }
  | { kind: "clear_field"; step?: string | null; field: string }
  | { kind: "connect"; from: string; to: string; reference?: { path: string; field: string } | null }
  | { kind: "disconnect"; from: string; to: string }
  | { kind: "wrap"; steps: string[]; id: string; container: Container }
  | { kind: "extract"; steps: string[]; name: string; id?: string | null }
  | { kind: "change_kind"; step: string; to: Record<string, unknown> };

export type Finding = DiagnosticView & { start: number; end: number };

/** Where a step stands in the text. */
export interface StepSpan {
  step: string;
  start: number;
  end: number;
}

/** What the server says about one text (`POST /api/v1/language/analyze`). */
export interface Analysis {
  hash: string;
  valid: boolean;
  findings: Finding[];
  /** Empty if the text cannot be read. */
  steps: PlanStepView[];
  spans: StepSpan[];
  tokens: { start: number; end: number; kind: string }[];
  /** Only of a text without errors. */
  plan?: PlanView | null;
  inputs?: unknown;
}

export interface Completion {
  label: string;
  kind: string;
  detail?: string | null;
  documentation?: string | null;
  required: boolean;
  start: number;
  end: number;
  text: string;
}

export interface Hover {
  start: number;
  end: number;
  type?: string | null;
  /** Markdown. */
  contents: string;
}

export interface CodeAction {
  title: string;
  code: string;
  preferred: boolean;
  edits: TextEdit[];
}

/** One rendered argument. */
export interface PreviewField {
  /** JSON Pointer of the field in the step's parameters. */
  field: string;
  type?: string | null;
  value?: unknown;
  error?: string | null;
}

/**
 * What a part of the builder (form, expression editor, data tree) gets: the text as it is now, and the one way to
 * change it. Every change goes through `edit`, so that text and graph share one undo history.
 */
export interface BuilderContext {
  /** The name under which the server knows the text: the file's path, or null for a new one. */
  name: string | null;
  text: string;
  /** Of the last text that the server has read; it may be a few keystrokes behind `text`. */
  analysis: Analysis | null;
  /** The run whose values are shown and used for previews and completions. */
  run: string | null;
  /** Resolves with null when the text was changed, else with why not. */
  edit: (edit: Edit) => Promise<string | null>;
  /** Selects a step by its id, in the graph and in the text. */
  select: (step: string | null) => void;
}

/** Drag and drop between panes: the type of the data, which is JSON. */
export const DRAG = {
  /** A step to add: `{ step }`, a value as in `add_step`, without its id. */
  step: "application/x-segue-step",
  /** A step of the graph to move: `{ id }`. */
  node: "application/x-segue-node",
  /** The beginning of a connection: `{ id }`. */
  connect: "application/x-segue-connect",
  /** A field of a value: `{ expression, step, path }`, where `expression` has its braces. */
  field: "application/x-segue-field",
} as const;
