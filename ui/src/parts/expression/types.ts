/** One completion, as the server lists it; `start..end` of the draft is replaced by `text`. */
export interface ExpressionCompletion {
  label: string;
  kind: string;
  detail?: string | null;
  documentation?: string | null;
  required: boolean;
  start: number;
  end: number;
  text: string;
}

/** What a draft gives on the data of a run, or why it gives nothing. */
export interface ExpressionValue {
  type?: string | null;
  value?: unknown;
  error?: string | null;
}

export interface ExpressionService {
  complete: (draft: string, at: number, signal: AbortSignal) => Promise<ExpressionCompletion[]>;
  preview: (draft: string, signal: AbortSignal) => Promise<ExpressionValue>;
}
