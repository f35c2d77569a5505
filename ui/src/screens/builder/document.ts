// The text of a composition while it is edited: one text, one undo history, and edits that the server computed.
//
// Graph and forms never change the text themselves: they ask the server for text edits, which are applied as one
// transaction. So undo takes back whole actions, in whichever pane they began.
import { history, isolateHistory, redo, redoDepth, undo, undoDepth } from "@codemirror/commands";
import { EditorState, Transaction, type ChangeDesc, type Extension, type TransactionSpec } from "@codemirror/state";
import type { EditorView } from "@codemirror/view";
import type { TextEdit } from "./model";

export interface Snapshot {
  text: string;
  /** Grows with every change of the text. */
  version: number;
  cursor: number;
  canUndo: boolean;
  canRedo: boolean;
  /** The text as it is on disk, or null for a new one. */
  saved: string | null;
  dirty: boolean;
  /** Steps of the history between the saved text and this one. */
  changes: number;
}

export interface DocumentChange {
  /** Null when only the cursor moved. */
  changes: ChangeDesc | null;
  /** What the person did: `input.type`, `select.pointer`, `edit`, `undo`, … */
  event: string;
}

export class BuilderDocument {
  private now: EditorState;
  private view: EditorView | null = null;
  private version = 0;
  private saved: string | null;
  private savedDepth = 0;
  private shot: Snapshot | null = null;
  private watchers = new Set<() => void>();
  private listeners = new Set<(change: DocumentChange) => void>();

  constructor(text: string, saved: string | null, extensions: Extension = []) {
    this.saved = saved;
    this.now = EditorState.create({ doc: text, extensions: [history(), extensions] });
  }

  get state(): EditorState {
    return this.now;
  }

  /** The view shows this document's state; until there is one, changes go to the state alone. */
  attach(view: EditorView): () => void {
    this.view = view;
    return () => {
      if (this.view === view) this.view = null;
    };
  }

  /** For the view: it has these transactions now. */
  received(transactions: readonly Transaction[], state: EditorState): void {
    this.now = state;
    for (const one of transactions) {
      if (one.docChanged) this.version++;
      if (!one.docChanged && !one.selection) continue;
      const event = one.annotation(Transaction.userEvent) ?? "";
      for (const listener of this.listeners) listener({ changes: one.docChanged ? one.changes.desc : null, event });
    }
    this.shot = null;
    for (const watcher of this.watchers) watcher();
  }

  dispatch(spec: TransactionSpec): void {
    if (this.view) return this.view.dispatch(spec);
    const transaction = this.now.update(spec);
    this.received([transaction], transaction.state);
  }

  /**
   * One action, one entry of the history. Refuses edits that were computed for another version of the text. The cursor
   * goes to what the action wrote.
   */
  apply(edits: readonly TextEdit[], version: number): boolean {
    if (version !== this.version) return false;
    if (edits.length === 0) return true;
    const changes = edits.map(({ start, end, text }) => ({ from: start, to: end, insert: text }));
    this.dispatch({ changes, userEvent: "edit", annotations: isolateHistory.of("full") });
    return true;
  }

  /** Puts another text in place of this one, as one action. Only the part that differs is replaced. */
  replace(text: string): void {
    this.apply(difference(this.snapshot().text, text), this.version);
  }

  undo(): boolean {
    return undo({ state: this.now, dispatch: (one) => this.take(one) });
  }

  redo(): boolean {
    return redo({ state: this.now, dispatch: (one) => this.take(one) });
  }

  private take(transaction: Transaction): void {
    if (this.view) this.view.dispatch(transaction);
    else this.received([transaction], transaction.state);
  }

  /** The text is on disk as `text`. It may have changed while it was written. */
  markSaved(text: string): void {
    this.saved = text;
    this.savedDepth = undoDepth(this.now);
    this.shot = null;
    for (const watcher of this.watchers) watcher();
  }

  readonly snapshot = (): Snapshot => {
    if (this.shot) return this.shot;
    const text = this.now.doc.toString();
    const dirty = text !== (this.saved ?? "");
    this.shot = {
      text,
      version: this.version,
      cursor: this.now.selection.main.head,
      canUndo: undoDepth(this.now) > 0,
      canRedo: redoDepth(this.now) > 0,
      saved: this.saved,
      dirty,
      changes: dirty ? Math.max(1, Math.abs(undoDepth(this.now) - this.savedDepth)) : 0,
    };
    return this.shot;
  };

  readonly subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  /** Called for every transaction that changes the text or moves the cursor. */
  onChange(listener: (change: DocumentChange) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** The one edit from `before` to `after`: what stands between their common beginning and end. */
export function difference(before: string, after: string): TextEdit[] {
  if (before === after) return [];
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before[start] === after[start]) start++;
  let tail = 0;
  while (tail < most - start && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  return [{ start, end: before.length - tail, text: after.slice(start, after.length - tail) }];
}
