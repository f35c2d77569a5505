// What the parts of the builder share: texts, edits, findings, and what a part gets to work with.
//
// Positions are UTF-16 offsets from the beginning of the text, as CodeMirror and the server count them.
import type { components } from "@/api/schema";

type Schemas = components["schemas"];
/** What the server says about one text. The steps of a text that cannot be read are those of the last one that could. */
export type Analysis = Pick<Schemas["TextAnalysis"], "hash" | "valid" | "findings" | "steps" | "plan" | "inputs" | "tokens"> & { spans: StepSpan[] };
export type CodeAction = Schemas["ActionList"]["actions"][number];
export type Completion = Schemas["CompletionView"];
export type Container = Schemas["Container"];
/** One change of the graph. Steps are named by their ids. */
export type Edit = Schemas["Edit"];
export type Edited = Schemas["EditList"];
export type Finding = Schemas["TextFinding"];
export type Hover = Schemas["HoverView"];
export type Place = Schemas["Place"];
/** One rendered argument. */
export type PreviewField = Schemas["PreviewFieldView"];
/** Where a step stands in the text. */
export type StepSpan = Pick<Schemas["StepRange"], "step" | "start" | "end">;
/** A token inside an expression, in the text that was analysed. */
export type Token = Schemas["TokenRange"];
/** Replaces `start..end` of the text that was sent. A list is sorted and does not overlap. */
export type TextEdit = Schemas["TextEditView"];

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
