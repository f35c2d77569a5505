// One composition while it is edited: its text, what the server says of it, the selection, and how it is changed.
import { redoDepth, undoDepth } from "@codemirror/commands";
import { EditorSelection } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { createContext, useContext, useSyncExternalStore } from "react";
import type { PlanStepView } from "@/api/types";
import { announce } from "@/app/announce";
import { plainText } from "@/lib/safe-text";
import { Analyzer, type Checked } from "./analyzer";
import { BuilderDocument, type Snapshot } from "./document";
import { editorExtensions } from "./editor";
import { formatOf } from "./files";
import type { Language } from "./language";
import type { Analysis, Edit, Edited } from "./model";
import { findStep, pathsById, stepAt } from "./steps";

export interface FileState {
  /** Null until a new composition is saved. */
  path: string | null;
  hash: string | null;
}

interface Shown {
  file: FileState;
  /** The selected step's id. */
  selected: string | null;
  /** The run whose states and values are shown. */
  run: string | null;
  /** Why the last change was refused. */
  refusal: string | null;
  /** The steps of the saved text, for ghosts. */
  savedSteps: readonly PlanStepView[] | null;
  /** Milliseconds of the last completion. */
  completedMs: number | null;
}

const TRIES = 3;
/** Characters of a step that are brought into view. */
const SHOWN_MOST = 400;

export class Builder {
  readonly document: BuilderDocument;
  readonly analyzer: Analyzer;
  /** From ids in the saved text to ids in this one. */
  readonly renamed = new Map<string, string>();
  private shown: Shown;
  private watchers = new Set<() => void>();
  private queue: Promise<unknown> = Promise.resolve();
  private ends: (() => void)[] = [];
  /** Whether the selection is the step at the cursor, and not one that was chosen in the graph. */
  private following = false;

  constructor(
    readonly language: Language,
    text: string,
    file: FileState,
    selected: string | null = null,
    /** The test file that a new composition began with. */
    readonly recording: string | null = null,
  ) {
    this.shown = { file, selected, run: null, refusal: null, savedSteps: null, completedMs: null };
    const extensions = editorExtensions({
      language,
      name: () => this.shown.file.path,
      run: () => this.shown.run,
      format: formatOf(file.path),
      label: "Text of the composition",
      onCompleted: (completedMs) => this.set({ completedMs }),
    });
    this.document = new BuilderDocument(text, file.hash === null ? null : text, extensions);
    this.analyzer = new Analyzer(this.document, language, file.path);
    this.ends.push(
      this.document.onChange(({ event }) => this.follow(event)),
      this.analyzer.subscribe(() => {
        this.keepSaved();
        // Only now is it known which steps there are around the cursor.
        if (this.following && this.analyzer.snapshot().current) this.selectAtCursor();
      }),
    );
    if (selected !== null) this.selectSoon(selected);
  }

  end(): void {
    this.analyzer.end();
    for (const end of this.ends) end();
  }

  readonly snapshot = (): Shown => this.shown;
  readonly subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };
  private set(change: Partial<Shown>): void {
    this.shown = { ...this.shown, ...change };
    for (const watcher of this.watchers) watcher();
  }

  get steps(): readonly PlanStepView[] {
    return this.analyzer.snapshot().analysis?.steps ?? [];
  }

  /** The cursor moved: the step under it is selected. Changes of the graph choose the selection themselves. */
  private follow(event: string): void {
    this.following = event !== "edit" && event !== "graph";
    if (this.following) this.selectAtCursor();
  }

  private selectAtCursor(): void {
    const spans = this.analyzer.snapshot().analysis?.spans ?? [];
    const selected = stepAt(spans, this.cursor());
    if (selected !== this.shown.selected) this.set({ selected });
  }

  /** Before the first word of a line, the cursor is at that word: the indentation belongs to the step around it. */
  private cursor(): number {
    const { doc, selection } = this.document.state;
    const { head } = selection.main;
    const line = doc.lineAt(head);
    return Math.max(head, line.from + (/^\s*(?:-\s+)*/.exec(line.text)?.[0].length ?? 0));
  }

  private keepSaved(): void {
    const { analysis, current } = this.analyzer.snapshot();
    if (!current || !analysis || this.document.snapshot().dirty) return;
    if (this.shown.savedSteps === analysis.steps) return;
    this.renamed.clear();
    this.set({ savedSteps: analysis.steps });
  }

  /** Selects a step in the graph, and brings it into view in the text. */
  select(step: string | null): void {
    if (step !== this.shown.selected) this.set({ selected: step });
    const span = this.analyzer.snapshot().analysis?.spans.find((one) => one.step === step);
    if (!span) return;
    const { head } = this.document.state.selection.main;
    const inside = head >= span.start && head <= span.end && stepAt(this.analyzer.snapshot().analysis?.spans ?? [], head) === step;
    // A short step is shown whole, of a long one its beginning.
    // Its last line counts from its beginning: a long line must not move the text sideways.
    const last = this.document.state.doc.lineAt(Math.min(span.end, span.start + SHOWN_MOST, this.document.state.doc.length)).from;
    const shown = EditorSelection.range(Math.max(last, span.start), span.start);
    this.document.dispatch({ ...(inside ? {} : { selection: { anchor: span.start } }), effects: EditorView.scrollIntoView(shown, { y: "nearest", yMargin: 60 }), userEvent: "graph" });
  }

  showRun(run: string | null): void {
    this.set({ run });
  }

  setFile(file: FileState): void {
    this.set({ file });
  }

  refuse(refusal: string | null): void {
    this.set({ refusal });
  }

  /** The text is on disk now. */
  saved(text: string, file: FileState): void {
    const moved = file.path !== this.shown.file.path;
    this.set({ file });
    this.document.markSaved(text);
    if (moved) this.analyzer.refresh(file.path);
    else this.keepSaved();
  }

  /** Asks the server for the text edits of a change and applies them as one action. Changes wait for each other. */
  edit(edit: Edit, what?: string): Promise<string | null> {
    const next = this.queue.then(() => this.perform(edit, what));
    this.queue = next;
    return next.then((result) => (typeof result === "string" ? result : null));
  }

  /** The same, with what a step extraction leaves to write. */
  editWithResult(edit: Edit, what?: string): Promise<Edited | string> {
    const next = this.queue.then(() => this.perform(edit, what));
    this.queue = next;
    return next;
  }

  private async perform(edit: Edit, what: string | undefined): Promise<Edited | string> {
    this.set({ refusal: null });
    for (let i = 0; i < TRIES; i++) {
      const { text, version } = this.document.snapshot();
      try {
        const edited = await this.language.edit(text, this.shown.file.path, edit);
        // The text was changed meanwhile: these edits are of another one.
        if (!this.document.apply(edited.edits, version)) continue;
        this.afterEdit(edit, edited);
        if (what) announce(what);
        return edited;
      } catch (error) {
        return this.refused(error instanceof Error ? error.message : String(error));
      }
    }
    return this.refused("the text changes faster than the server answers");
  }

  private refused(why: string): string {
    this.set({ refusal: why });
    announce(`Not done: ${plainText(why)}`);
    return why;
  }

  private afterEdit(edit: Edit, { edits }: Edited): void {
    if (edit.kind === "rename_step") {
      const original = [...this.renamed].find(([, now]) => now === edit.step)?.[0] ?? edit.step;
      this.renamed.set(original, edit.to);
      if (this.shown.selected === edit.step) this.set({ selected: edit.to });
    }
    if (edit.kind === "add_step" && hasId(edit.step)) this.selectSoon(edit.step.id);
    if (edit.kind === "duplicate_step" && edit.id) this.selectSoon(edit.id);
    if (edit.kind === "wrap") this.selectSoon(edit.id);
    // The steps are gone; the one that calls the new composition stands where the first of them stood.
    if (edit.kind === "extract") this.selectSoonAt(Math.max(0, ...edits.filter((one) => one.text !== "").map((one) => one.start).slice(0, 1)));
    if (edit.kind === "remove_step" && this.shown.selected === edit.step) this.set({ selected: null });
  }

  /** Selects a step that the next analysis knows. */
  private selectSoon(step: string): void {
    this.set({ selected: step });
    this.afterNext(({ steps }) => this.shown.selected === step && findStep(steps, step) && this.select(step));
  }

  /** Selects the step that the next analysis finds at a position. */
  private selectSoonAt(at: number): void {
    this.set({ selected: null });
    this.afterNext(({ spans }) => this.shown.selected === null && this.select(stepAt(spans, this.document.state.doc.lineAt(at).to)));
  }

  private afterNext(act: (analysis: Analysis) => unknown): void {
    const stop = this.analyzer.subscribe(() => {
      const { analysis, current } = this.analyzer.snapshot();
      if (!current || !analysis) return;
      stop();
      act(analysis);
    });
  }

  undo(): void {
    if (undoDepth(this.document.state) === 0) return announce("Nothing to undo");
    this.document.undo();
    announce("Undone");
  }

  redo(): void {
    if (redoDepth(this.document.state) === 0) return announce("Nothing to redo");
    this.document.redo();
    announce("Redone");
  }

  /** All ids of the text, also those that the last analysis does not know yet. */
  takenIds(): Set<string> {
    const taken = new Set(pathsById(this.steps).keys());
    for (const match of this.document.snapshot().text.matchAll(/\bid"?:\s*["']?([\w$-]+)/g)) if (match[1]) taken.add(match[1]);
    return taken;
  }
}

const hasId = (step: unknown): step is { id: string } => typeof step === "object" && step !== null && "id" in step && typeof step.id === "string";

export const BuilderCtx = createContext<Builder | null>(null);

export function useBuilder(): Builder {
  const builder = useContext(BuilderCtx);
  if (!builder) throw new Error("outside of the builder");
  return builder;
}

/** A part of the state; the component is drawn again when it changes. */
export function useShown<T>(pick: (shown: Shown) => T): T {
  const builder = useBuilder();
  return useSyncExternalStore(builder.subscribe, () => pick(builder.snapshot()));
}

export function useText<T>(pick: (snapshot: Snapshot) => T): T {
  const { document } = useBuilder();
  return useSyncExternalStore(document.subscribe, () => pick(document.snapshot()));
}

export function useChecked<T>(pick: (checked: Checked) => T): T {
  const { analyzer } = useBuilder();
  return useSyncExternalStore(analyzer.subscribe, () => pick(analyzer.snapshot()));
}
