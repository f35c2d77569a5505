// What the text editor draws over the text: findings and the selected step.
import { RangeSet, StateEffect, StateField, type EditorState, type Extension, type Range } from "@codemirror/state";
import { Decoration, EditorView, GutterMarker, WidgetType, gutter, type DecorationSet } from "@codemirror/view";
import { plainText } from "@/lib/safe-text";
import type { CodeAction, Finding } from "./model";

export interface Shown {
  findings: readonly Finding[];
  selected: { start: number; end: number } | null;
}
/** The finding under the cursor with its fixes, drawn below its line. */
export interface OpenFinding {
  finding: Finding;
  actions: readonly CodeAction[];
  onFix: (action: CodeAction) => void;
}

export const setShown = StateEffect.define<Shown>();
export const setOpen = StateEffect.define<OpenFinding | null>();

const clamp = (state: EditorState, at: number): number => Math.max(0, Math.min(state.doc.length, at));

function decorate(state: EditorState, { findings, selected }: Shown): DecorationSet {
  const ranges: Range<Decoration>[] = [];
  if (selected) {
    const last = state.doc.lineAt(clamp(state, selected.end)).number;
    for (let n = state.doc.lineAt(clamp(state, selected.start)).number; n <= last; n++) ranges.push(SELECTED_LINE.range(state.doc.line(n).from));
  }
  for (const one of findings) {
    const from = clamp(state, one.start);
    // A finding without an extent still gets a line below something.
    const to = clamp(state, Math.max(one.end, from + 1));
    if (to > from) ranges.push((one.severity === "error" ? ERROR : WARNING).range(from, to));
  }
  return Decoration.set(ranges, true);
}
const SELECTED_LINE = Decoration.line({ class: "cm-selected-step" });
const ERROR = Decoration.mark({ class: "cm-mark-failed" });
const WARNING = Decoration.mark({ class: "cm-mark-warning" });

const decorations = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(setShown)) return decorate(transaction.state, effect.value);
    return value.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

class FindingMarker extends GutterMarker {
  constructor(
    readonly error: boolean,
    readonly message: string,
  ) {
    super();
  }
  override eq(other: FindingMarker): boolean {
    return other.error === this.error && other.message === this.message;
  }
  override toDOM(): Node {
    const mark = document.createElement("span");
    mark.className = this.error ? "cm-note-failed" : "cm-note-warning";
    mark.textContent = this.error ? "✖" : "▲";
    mark.title = plainText(this.message);
    return mark;
  }
}

/** One mark per line: as bad as its worst finding. */
function markersOf(state: EditorState, findings: readonly Finding[]) {
  const lines = new Map<number, { error: boolean; messages: string[] }>();
  for (const one of findings) {
    const { from } = state.doc.lineAt(clamp(state, one.start));
    const at = lines.get(from) ?? { error: false, messages: [] };
    at.error ||= one.severity === "error";
    at.messages.push(one.message);
    lines.set(from, at);
  }
  return [...lines].sort(([a], [b]) => a - b).map(([from, { error, messages }]) => new FindingMarker(error, messages.join("\n")).range(from));
}
const findingsField = StateField.define<readonly Finding[]>({
  create: () => [],
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(setShown)) return effect.value.findings;
    if (!transaction.docChanged || value.length === 0) return value;
    return value.map((one) => ({ ...one, start: transaction.changes.mapPos(one.start, 1), end: transaction.changes.mapPos(one.end, -1) }));
  },
});
const findingsGutter = gutter({
  class: "cm-notes",
  markers: (view) => RangeSet.of(markersOf(view.state, view.state.field(findingsField))),
  initialSpacer: () => new FindingMarker(false, ""),
});

class FindingWidget extends WidgetType {
  constructor(readonly open: OpenFinding) {
    super();
  }
  override eq(other: FindingWidget): boolean {
    return other.open.finding.message === this.open.finding.message && other.open.actions === this.open.actions;
  }
  override toDOM(): HTMLElement {
    const { finding, actions, onFix } = this.open;
    // The editor measures the outer box, so the space around the inner one is padding.
    const space = document.createElement("div");
    space.className = "cm-finding-space";
    const box = document.createElement("div");
    box.className = `cm-finding ${finding.severity === "error" ? "failed" : "warning"}`;
    space.append(box);
    const message = document.createElement("div");
    message.textContent = plainText(finding.message);
    const row = document.createElement("div");
    row.className = "cm-finding-row";
    for (const [i, action] of actions.entries()) {
      const fix = document.createElement("button");
      fix.type = "button";
      fix.textContent = plainText(action.title);
      if (i === 0) fix.append(Object.assign(document.createElement("kbd"), { textContent: "Ctrl ." }));
      fix.addEventListener("click", () => onFix(action));
      row.append(fix);
    }
    if (finding.help && actions.length === 0) row.append(Object.assign(document.createElement("span"), { textContent: plainText(finding.help) }));
    row.append(Object.assign(document.createElement("code"), { textContent: finding.code }));
    box.append(message, row);
    return space;
  }
  override ignoreEvent(): boolean {
    return true;
  }
}
const openField = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(setOpen)) continue;
      if (!effect.value) return Decoration.none;
      const line = transaction.state.doc.lineAt(clamp(transaction.state, effect.value.finding.start));
      return Decoration.set([Decoration.widget({ widget: new FindingWidget(effect.value), block: true, side: 1 }).range(line.to)]);
    }
    return value.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

export const marks: Extension = [findingsField, findingsGutter, decorations, openField];

/** The finding on the line of the cursor that is the nearest to it. */
export function findingAt(state: EditorState, findings: readonly Finding[], at: number): Finding | null {
  const line = state.doc.lineAt(clamp(state, at));
  const far = (one: Finding) => (at < one.start ? one.start - at : at > one.end ? at - one.end : 0);
  const here = findings.filter((one) => one.start <= line.to && one.end >= line.from);
  return [...here].sort((a, b) => Number(b.severity === "error") - Number(a.severity === "error") || far(a) - far(b))[0] ?? null;
}
