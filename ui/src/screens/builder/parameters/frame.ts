// Completion of a draft that is not in the text yet: the server is asked what the text would be with the draft in its
// place. It is asked once for a field; then drafts are put into the frame that it gave.
import type { Completion } from "../model";
import { applied, completions, textEdits } from "../requests";
import type { BuilderContext } from "../model";

type Text = Pick<BuilderContext, "text" | "name" | "run">;

const MARK = "{{ segue_draft }}";

export interface Frame {
  before: string;
  after: string;
  /** How a draft is written between the two. */
  quote: '"' | "'" | "";
}

/** Finds the mark in the text that an edit gave. */
export function frameOf(text: string): Frame | null {
  const at = text.indexOf(MARK);
  if (at < 0) return null;
  const quote = text[at - 1];
  return { before: text.slice(0, at), after: text.slice(at + MARK.length), quote: quote === '"' || quote === "'" ? quote : "" };
}

export function written(draft: string, quote: Frame["quote"]): string {
  if (quote === '"') return JSON.stringify(draft).slice(1, -1);
  return quote === "'" ? draft.replaceAll("'", "''") : draft.replaceAll(/\r?\n/g, " ");
}

/** Completions at a position of the draft; their places are moved from the text into the draft. */
export class DraftCompleter {
  private frame: Promise<Frame | null> | null = null;

  constructor(
    private readonly text: Text,
    private readonly step: string,
    private readonly field: string,
    /** A condition stands without braces. */
    private readonly condition: boolean,
  ) {}

  async complete(draft: string, at: number, signal: AbortSignal): Promise<Completion[]> {
    this.frame ??= textEdits(this.text, { kind: "set_field", step: this.step, field: this.field, value: MARK }).then((edits) => frameOf(applied(this.text.text, edits)));
    const frame = await this.frame.catch(() => null);
    if (!frame || signal.aborted) return [];
    const bare = this.condition && !draft.includes("{{");
    const put = (some: string) => written(some, frame.quote);
    const text = frame.before + (bare ? "{{ " : "") + put(draft) + (bare ? " }}" : "") + frame.after;
    const here = frame.before.length + (bare ? 3 : 0) + put(draft.slice(0, at)).length;
    const items = await completions({ ...this.text, text }, here, signal);
    return items.map((item) => ({ ...item, start: at - (here - item.start), end: at + (item.end - here) }));
  }
}
