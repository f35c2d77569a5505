import type { components } from "@/api/schema";

type Schemas = components["schemas"];
/** One completion; `start..end` of the draft is replaced by `text`. */
export type ExpressionCompletion = Schemas["CompletionView"];
/** What a draft gives on the data of a run, or why it gives nothing. A draft that is no step's argument has no type. */
export type ExpressionValue = Partial<Pick<Schemas["PreviewFieldView"], "type" | "value" | "error">>;

export interface ExpressionService {
  complete: (draft: string, at: number, signal: AbortSignal) => Promise<ExpressionCompletion[]>;
  preview: (draft: string, signal: AbortSignal) => Promise<ExpressionValue>;
}
