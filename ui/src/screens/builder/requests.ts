// What the parts of the builder ask the server, beside the routes that the screen itself asks.
import { api, unwrap } from "@/api/client";
import type { Completion, Edit, PreviewField, TextEdit } from "./model";

interface Text {
  text: string;
  name: string | null;
  run: string | null;
}

export const completions = async ({ text, name, run }: Text, at: number, signal?: AbortSignal): Promise<Completion[]> =>
  (await unwrap(api.POST("/api/v1/language/complete", { body: { text, name, run, at }, signal: signal ?? null }))).items;

export const textEdits = async ({ text, name }: Text, edit: Edit, signal?: AbortSignal): Promise<TextEdit[]> =>
  (await unwrap(api.POST("/api/v1/language/edit", { body: { text, name, edit }, signal: signal ?? null }))).edits;

/** One template, or without it every argument of the step. */
export const preview = async ({ text, name, run }: Text, step: string, template: string | null, signal?: AbortSignal): Promise<PreviewField[]> =>
  (await unwrap(api.POST("/api/v1/language/preview", { body: { text, name, run, step, ...(template === null ? {} : { template }) }, signal: signal ?? null }))).fields;

/** The edits of a test file that keep an output as a mock; without a text the file is new. */
export const pinEdits = async (testText: string | null, composition: string, step: string, output: unknown): Promise<TextEdit[]> =>
  (await unwrap(api.POST("/api/v1/language/pin", { body: { test_text: testText, composition, step, output } }))).edits;

/** The text with edits applied; they are sorted and do not overlap. */
export function applied(text: string, edits: readonly TextEdit[]): string {
  let out = "";
  let from = 0;
  for (const edit of edits) {
    out += text.slice(from, edit.start) + edit.text;
    from = edit.end;
  }
  return out + text.slice(from);
}
