// The part of ExpressionField that loads CodeMirror; nothing else imports it statically.
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { Compartment, EditorState, Prec, StateField, type Extension, type Range } from "@codemirror/state";
import { Decoration, EditorView, highlightSpecialChars, keymap, type DecorationSet } from "@codemirror/view";
import { codeTheme, typeOverSelection } from "@/parts/code-mirror";
import { expressionColours } from "./colours";
import { CompletionList } from "./completion-list";
import { insideExpression, words } from "./lexer";
import type { ExpressionCompletion, ExpressionService } from "./types";

/** Longer texts have no colours: they would be read again at each key. */
const COLOURED_MOST = 20_000;
export const PAUSE_MS = 40;

export interface MirrorOptions {
  value: string;
  label: string;
  condition: boolean;
  autoFocus: boolean;
  onChange: (text: string) => void;
  complete: ExpressionService["complete"];
}

const colours = (condition: boolean) =>
  StateField.define<DecorationSet>({
    create: (state) => decorate(state, condition),
    update: (value, transaction) => (transaction.docChanged ? decorate(transaction.state, condition) : value),
    provide: (field) => EditorView.decorations.from(field),
  });

function decorate(state: EditorState, condition: boolean): DecorationSet {
  if (state.doc.length > COLOURED_MOST) return Decoration.none;
  const ranges: Range<Decoration>[] = words(state.doc.toString(), condition).map((word) => Decoration.mark({ class: `x-${word.kind}` }).range(word.from, word.to));
  return Decoration.set(ranges);
}

const theme = EditorView.theme({
  "&": { height: "auto", backgroundColor: "transparent" },
  ".cm-scroller": { maxHeight: "180px", overflow: "auto" },
  ".cm-content": { padding: "4px 0" },
  ".cm-line": { padding: "0 9px" },
  ".cm-specialChar": { color: "var(--in-doubt-fg)", backgroundColor: "var(--in-doubt-bg)" },
});

const LIST_STYLE = `ul { margin: 4px 0 0; padding: 4px; list-style: none; max-height: 168px; overflow: auto; background: var(--raised); border: 1px solid var(--border); border-radius: var(--r-2); font: var(--m-12); }
li { display: flex; justify-content: space-between; gap: 12px; min-height: 24px; align-items: center; padding: 0 8px; border-radius: var(--r-1); cursor: pointer; white-space: nowrap; }
li[aria-selected=true] { background: var(--accent-soft); }
li:hover { background: var(--hover); }
.label { flex: none; max-width: 70%; overflow: hidden; text-overflow: ellipsis; }
.detail { color: var(--text-2); overflow: hidden; text-overflow: ellipsis; }`;

/** A constructed style sheet: the policy forbids style elements. */
function styleList(root: ShadowRoot): void {
  if (typeof CSSStyleSheet === "undefined" || !("replaceSync" in CSSStyleSheet.prototype)) return;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(LIST_STYLE);
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
}

/** What begins with the typed letters comes first; else the order is the server's. */
function ranked(items: ExpressionCompletion[], text: string, at: number): ExpressionCompletion[] {
  const begins = (item: ExpressionCompletion) => item.label.toLowerCase().startsWith(text.slice(item.start, at).toLowerCase());
  return [...items.filter(begins), ...items.filter((item) => !begins(item))];
}

/** Asks for completions after a pause; an answer to an older text is dropped. */
class Completions {
  private asking: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  readonly list: CompletionList;

  constructor(
    private readonly options: MirrorOptions,
    private readonly view: () => EditorView,
    private readonly changed: () => void,
  ) {
    this.list = new CompletionList(options.label, (item) => this.pick(item));
  }

  ask(pause: number): void {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.timer = setTimeout(() => void this.request(), pause);
  }

  close(): void {
    clearTimeout(this.timer);
    this.asking?.abort();
    if (!this.list.open) return;
    this.list.show([]);
    this.changed();
  }

  private async request(): Promise<void> {
    const { state } = this.view();
    const at = state.selection.main.head;
    const text = state.doc.toString();
    if (text.length > COLOURED_MOST || !insideExpression(text, at, this.options.condition)) return this.close();
    const asking = new AbortController();
    this.asking = asking;
    const items = await this.options.complete(text, at, asking.signal).catch(() => []);
    if (asking.signal.aborted || this.view().state.doc !== state.doc) return;
    const fitting = ranked(items.filter((item) => item.start >= 0 && item.end <= text.length && item.start <= item.end), text, at);
    const done = items.length === 1 && items[0] && text.slice(items[0].start, items[0].end) === items[0].text;
    this.list.show(done ? [] : fitting);
    this.changed();
  }

  pick(item: ExpressionCompletion | null): boolean {
    if (!item) return false;
    this.list.show([]);
    this.view().dispatch({ changes: { from: item.start, to: item.end, insert: item.text }, selection: { anchor: item.start + item.text.length }, userEvent: "input.complete" });
    this.changed();
    return true;
  }

  /** Keys that the list takes while it is open. */
  keys(): Extension {
    const whenOpen = (run: () => void) => () => {
      if (!this.list.open) return false;
      run();
      return true;
    };
    const move = (by: number) => whenOpen(() => (this.list.move(by), this.changed()));
    return Prec.highest(
      keymap.of([
        { key: "ArrowDown", run: move(1) },
        { key: "ArrowUp", run: move(-1) },
        { key: "Enter", run: whenOpen(() => this.pick(this.list.chosen)) },
        { key: "Escape", run: whenOpen(() => this.close()), stopPropagation: true },
        { key: "Ctrl-Space", run: () => (this.ask(0), true) },
      ]),
    );
  }
}

/** Only what differs is replaced, so that the cursor stays where it is. */
function difference(before: string, after: string): { from: number; to: number; insert: string } {
  const most = Math.min(before.length, after.length);
  let from = 0;
  while (from < most && before[from] === after[from]) from++;
  let tail = 0;
  while (tail < most - from && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  return { from, to: before.length - tail, insert: after.slice(from, after.length - tail) };
}

export interface Mirror {
  setValue: (text: string) => void;
  focus: () => void;
  destroy: () => void;
  view: EditorView;
}

export function mount(host: HTMLElement, options: MirrorOptions): Mirror {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open", delegatesFocus: true });
  const said = new Compartment();
  const attributes = (): Extension => {
    const active = completions.list.active;
    return EditorView.contentAttributes.of({ "aria-label": options.label, "aria-autocomplete": "list", "aria-haspopup": "listbox", ...(active ? { "aria-controls": "completions", "aria-activedescendant": active } : {}) });
  };
  const completions = new Completions(options, () => view, () => view.dispatch({ effects: said.reconfigure(attributes()) }));
  let quiet = false;
  const view: EditorView = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: options.value,
      extensions: [
        completions.keys(),
        history(),
        keymap.of([...historyKeymap, ...defaultKeymap]),
        highlightSpecialChars(),
        typeOverSelection,
        EditorView.lineWrapping,
        said.of(EditorView.contentAttributes.of({ "aria-label": options.label, "aria-autocomplete": "list", "aria-haspopup": "listbox" })),
        colours(options.condition),
        // The earlier theme wins.
        theme,
        expressionColours,
        codeTheme,
        EditorView.updateListener.of((update) => {
          if (!update.docChanged || quiet) return;
          options.onChange(update.state.doc.toString());
          if (update.transactions.some((one) => one.isUserEvent("input"))) completions.ask(PAUSE_MS);
          else completions.close();
        }),
        EditorView.domEventHandlers({ blur: () => completions.close() }),
      ],
    }),
  });
  styleList(root);
  root.append(completions.list.dom);
  if (options.autoFocus) {
    view.focus();
    view.dispatch({ selection: { anchor: view.state.doc.length } });
  }
  return {
    view,
    setValue: (text) => {
      if (text === view.state.doc.toString()) return;
      quiet = true;
      view.dispatch({ changes: difference(view.state.doc.toString(), text) });
      quiet = false;
    },
    focus: () => view.focus(),
    destroy: () => {
      completions.close();
      view.destroy();
      completions.list.dom.remove();
    },
  };
}
