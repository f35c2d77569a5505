// The colours of expressions in the text, by the tokens of the last analysis. They move with the text until the next one.
import { Prec, StateEffect, StateField, type Extension, type Range } from "@codemirror/state";
import { Decoration, EditorView, type DecorationSet } from "@codemirror/view";
import { expressionColours } from "@/parts/expression/colours";
import type { Token } from "./model";

/** More tokens than this are not coloured: they would be placed anew at each analysis. */
export const TOKENS_MOST = 50_000;

export const setTokens = StateEffect.define<readonly Token[]>();

const marks = new Map<string, Decoration>();
/** What is typed at the edge of a token has its colour until the server says better. */
function markOf(kind: string): Decoration {
  const known = marks.get(kind) ?? Decoration.mark({ class: `x-${kind}`, inclusive: true });
  marks.set(kind, known);
  return known;
}

function decorate(tokens: readonly Token[], length: number): DecorationSet {
  const ranges: Range<Decoration>[] = [];
  for (const { start, end, kind } of tokens.slice(0, TOKENS_MOST)) if (start < end && end <= length) ranges.push(markOf(kind).range(start, end));
  return Decoration.set(ranges, true);
}

const field = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(setTokens)) return decorate(effect.value, transaction.state.doc.length);
    return value.map(transaction.changes);
  },
  provide: (one) => EditorView.decorations.from(one),
});

/** Inside of what the language of the text colours. */
export const tokens: Extension = [Prec.highest(field), expressionColours];
