// What the parts of the builder ask the server, beside the routes that the screen itself asks.
import { api, unwrap } from "@/api/client";
import type { Completion, Edit, PreviewField, TextEdit } from "./model";

// The client types paths by the schema; these are called by name.
type Post = (path: string, init: { body: unknown; signal?: AbortSignal }) => Promise<{ data?: unknown; error?: unknown; response: Response }>;
const post = <T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> => unwrap((api.POST as unknown as Post)(`/api/v1/language/${path}`, { body, ...(signal ? { signal } : {}) })) as Promise<T>;

interface Text {
  text: string;
  name: string | null;
  run: string | null;
}
const sent = ({ text, name, run }: Text) => ({ text, ...(name === null ? {} : { name }), ...(run === null ? {} : { run }) });
const unrun = (text: Text) => sent({ ...text, run: null });

export const completions = (text: Text, at: number, signal?: AbortSignal): Promise<Completion[]> => post<{ items: Completion[] }>("complete", { ...sent(text), at }, signal).then(({ items }) => items);
export const textEdits = (text: Text, edit: Edit, signal?: AbortSignal): Promise<TextEdit[]> => post<{ edits: TextEdit[] }>("edit", { ...unrun(text), edit }, signal).then(({ edits }) => edits);
/** One template, or without it every argument of the step. */
export const preview = (text: Text, step: string, template: string | null, signal?: AbortSignal): Promise<PreviewField[]> => post<{ fields: PreviewField[] }>("preview", { ...sent(text), step, ...(template === null ? {} : { template }) }, signal).then(({ fields }) => fields);

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
