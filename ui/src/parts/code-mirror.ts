// The part of CodeView that loads CodeMirror; nothing else imports it statically.
import { defaultKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, foldGutter, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, RangeSet, StateEffect, StateField, type Range } from "@codemirror/state";
import { Decoration, EditorView, GutterMarker, gutter, keymap, lineNumbers, type DecorationSet } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { plainText } from "@/lib/safe-text";
import type { CodeMark, CodeNote } from "./CodeView";

interface Shown {
  text: string;
  format: string;
  label: string;
  marks?: CodeMark[];
  notes?: CodeNote[];
  line?: number;
  onLine?: (line: number) => void;
}

export const codeColours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--code-key)" },
  { tag: [tags.string, tags.content], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--code-comment)" },
]);

export const codeTheme = EditorView.theme({
  "&": { height: "100%", font: "var(--m-12)", color: "var(--text)", backgroundColor: "var(--surface)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { font: "inherit", lineHeight: "19px", fontVariantLigatures: "none" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--text-3)", border: "0" },
  ".cm-mark-failed": { backgroundColor: "var(--failed-bg)", textDecoration: "underline wavy var(--failed-fg) 1px", textUnderlineOffset: "3px" },
  ".cm-mark-warning": { textDecoration: "underline wavy var(--waiting-fg) 1px", textUnderlineOffset: "3px" },
  ".cm-mark-waiting": { backgroundColor: "var(--waiting-bg)" },
  ".cm-mark-selected": { backgroundColor: "var(--selected)" },
  ".cm-notes": { width: "18px", textAlign: "center", fontWeight: "700", cursor: "default" },
  ".cm-note-failed": { color: "var(--failed-fg)" },
  ".cm-note-warning": { color: "var(--waiting-fg)" },
});

/**
 * Typing over a selection. Left to itself, Chromium keeps the colour of the replaced text with an inline style, which the
 * policy forbids and the console reports.
 */
export const typeOverSelection = EditorView.domEventHandlers({
  beforeinput: (event, view) => {
    if (event.inputType !== "insertText" || !event.data || view.composing || view.state.selection.main.empty) return false;
    event.preventDefault();
    view.dispatch({ ...view.state.replaceSelection(event.data), userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

const setMarks = StateEffect.define<CodeMark[]>();
const markField = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(setMarks)) return decorate(transaction.state, effect.value);
    return value.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

class NoteMarker extends GutterMarker {
  constructor(readonly note: CodeNote) {
    super();
  }
  override eq(other: NoteMarker): boolean {
    return other.note.text === this.note.text && other.note.tone === this.note.tone;
  }
  override toDOM(): Node {
    const mark = document.createElement("span");
    mark.className = `cm-note-${this.note.tone}`;
    mark.textContent = this.note.tone === "failed" ? "✖" : "▲";
    mark.title = plainText(this.note.text);
    return mark;
  }
}
const setNotes = StateEffect.define<CodeNote[]>();
const noteField = StateField.define<RangeSet<GutterMarker>>({
  create: () => RangeSet.empty,
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(setNotes)) continue;
      const { doc } = transaction.state;
      const known = effect.value.filter((note) => note.line >= 1 && note.line <= doc.lines);
      return RangeSet.of(known.map((note) => new NoteMarker(note).range(doc.line(note.line).from)), true);
    }
    return value.map(transaction.changes);
  },
});

function offset(state: EditorState, at: { line: number; column: number }): number {
  const line = state.doc.line(Math.max(1, Math.min(at.line, state.doc.lines)));
  // Columns count characters, the editor counts UTF-16 units.
  const before = Array.from(line.text).slice(0, Math.max(0, at.column - 1)).join("");
  return line.from + before.length;
}

function decorate(state: EditorState, marks: CodeMark[]): DecorationSet {
  const ranges: Range<Decoration>[] = [];
  for (const mark of marks) {
    const from = offset(state, mark.from);
    const to = offset(state, mark.to);
    if (to > from) ranges.push(Decoration.mark({ class: `cm-mark-${mark.tone}` }).range(from, to));
  }
  return Decoration.set(ranges, true);
}

const noteGutter = gutter({ class: "cm-notes", markers: (view) => view.state.field(noteField) });

const language = (format: string) => (format === "json" ? json() : yaml());

export function mount(host: HTMLElement, shown: () => Shown) {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const slot = new Compartment();
  const first = shown();
  let format = first.format;
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: first.text,
      extensions: [
        noteField,
        ...(first.notes ? [noteGutter] : []),
        lineNumbers(),
        foldGutter(),
        EditorState.readOnly.of(true),
        EditorView.contentAttributes.of({ "aria-label": first.label, tabindex: "0" }),
        keymap.of(defaultKeymap),
        slot.of(language(format)),
        syntaxHighlighting(codeColours),
        codeTheme,
        markField,
        EditorView.updateListener.of((update) => {
          if (update.selectionSet) shown().onLine?.(update.state.doc.lineAt(update.state.selection.main.head).number);
        }),
      ],
    }),
  });
  const update = (next: Shown) => {
    if (next.text !== view.state.doc.toString())
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next.text } });
    if (next.format !== format) {
      format = next.format;
      view.dispatch({ effects: slot.reconfigure(language(format)) });
    }
    view.dispatch({ effects: [setMarks.of(next.marks ?? []), setNotes.of(next.notes ?? [])] });
    if (next.line) {
      const at = offset(view.state, { line: next.line, column: 1 });
      view.dispatch({ effects: EditorView.scrollIntoView(at, { y: "center" }) });
    }
  };
  update(first);
  return { update, destroy: () => view.destroy() };
}
