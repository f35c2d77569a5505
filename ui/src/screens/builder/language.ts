// The language routes of the server (`/api/v1/language/…`).
import { api, unwrap } from "@/api/client";
import type { Analysis, CodeAction, Completion, Edit, Edited, Hover } from "./model";

export interface Language {
  analyze(text: string, name: string | null, signal?: AbortSignal): Promise<Analysis>;
  complete(text: string, name: string | null, at: number, run: string | null, signal?: AbortSignal): Promise<Completion[]>;
  hover(text: string, name: string | null, at: number, run: string | null): Promise<Hover | null>;
  actions(text: string, name: string | null, start: number, end: number): Promise<CodeAction[]>;
  edit(text: string, name: string | null, edit: Edit): Promise<Edited>;
}

export const language: Language = {
  analyze: (text, name, signal) => unwrap(api.POST("/api/v1/language/analyze", { body: { text, name }, signal: signal ?? null })),
  complete: (text, name, at, run, signal) => unwrap(api.POST("/api/v1/language/complete", { body: { text, name, at, run }, signal: signal ?? null })).then(({ items }) => items),
  hover: (text, name, at, run) => unwrap(api.POST("/api/v1/language/hover", { body: { text, name, at, run } })),
  actions: (text, name, start, end) => unwrap(api.POST("/api/v1/language/actions", { body: { text, name, start, end } })).then(({ actions }) => actions),
  edit: (text, name, edit) => unwrap(api.POST("/api/v1/language/edit", { body: { text, name, edit } })),
};
