// The language routes of the server (`/api/v1/language/…`).
import { api, unwrap } from "@/api/client";
import type { Analysis, CodeAction, Completion, Edit, Hover, TextEdit } from "./model";

export interface Language {
  analyze(text: string, name: string | null, signal?: AbortSignal): Promise<Analysis>;
  complete(text: string, name: string | null, at: number, run: string | null, signal?: AbortSignal): Promise<Completion[]>;
  hover(text: string, name: string | null, at: number, run: string | null): Promise<Hover | null>;
  actions(text: string, name: string | null, start: number, end: number): Promise<CodeAction[]>;
  edit(text: string, name: string | null, edit: Edit): Promise<Edited>;
}
export interface Edited {
  edits: TextEdit[];
  /** The composition that steps were moved to. */
  extracted?: { name: string; text: string } | null;
}

// The client types paths by the schema; these are called by name.
type Post = (path: string, init: { body: unknown; signal?: AbortSignal }) => Promise<{ data?: unknown; error?: unknown; response: Response }>;
const post = <T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> => unwrap((api.POST as unknown as Post)(`/api/v1/language/${path}`, { body, ...(signal ? { signal } : {}) })) as Promise<T>;
const named = (name: string | null) => (name === null ? {} : { name });
const withRun = (run: string | null) => (run === null ? {} : { run });

export const language: Language = {
  analyze: (text, name, signal) => post("analyze", { text, ...named(name) }, signal),
  complete: (text, name, at, run, signal) => post<{ items: Completion[] }>("complete", { text, ...named(name), at, ...withRun(run) }, signal).then(({ items }) => items),
  hover: (text, name, at, run) => post("hover", { text, ...named(name), at, ...withRun(run) }),
  actions: (text, name, start, end) => post<{ actions: CodeAction[] }>("actions", { text, ...named(name), start, end }).then(({ actions }) => actions),
  edit: (text, name, edit) => post("edit", { text, ...named(name), edit }),
};
