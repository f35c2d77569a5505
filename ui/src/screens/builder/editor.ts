// The text pane: CodeMirror with completion and hover from the server. It lives in a shadow root, where it adopts
// constructed style sheets, so the page needs no inline style element.
import { acceptCompletion, autocompletion, completionKeymap, completionStatus, startCompletion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, foldGutter, foldKeymap, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, hoverTooltip, keymap, lineNumbers, type Tooltip } from "@codemirror/view";
import { plainText } from "@/lib/safe-text";
import { codeColours, codeTheme } from "@/parts/code-mirror";
import type { BuilderDocument } from "./document";
import type { Language } from "./language";
import { marks } from "./marks";
import type { Completion, Hover } from "./model";
import { tokens } from "./tokens";

export interface EditorOptions {
  language: Pick<Language, "complete" | "hover">;
  /** Read at each request. */
  name: () => string | null;
  run: () => string | null;
  format: "yaml" | "json";
  label: string;
  /** Called with the milliseconds from the question to the list. */
  onCompleted?: (ms: number) => void;
}

const toOption = (item: Completion) => ({
  label: plainText(item.label),
  detail: [item.required ? "required" : "", item.detail ? plainText(item.detail) : ""].filter(Boolean).join(" "),
  ...(item.documentation ? { info: () => prose(item.documentation ?? "") } : {}),
  // What is required comes first.
  boost: item.required ? 1 : 0,
  apply: (view: EditorView, _: unknown, __: number, to: number) =>
    view.dispatch({ changes: { from: item.start, to: Math.max(item.end, to), insert: item.text }, selection: { anchor: item.start + item.text.length }, userEvent: "input.complete" }),
});

/** Text of tools: paragraphs and code, never markup. */
function prose(markdown: string): HTMLElement {
  const box = document.createElement("div");
  box.className = "cm-prose";
  for (const part of markdown.slice(0, 4000).split(/\n{2,}/)) {
    const fence = /^```\w*\n([\s\S]*?)\n?```$/.exec(part.trim());
    const block = document.createElement(fence ? "pre" : "p");
    const text = fence?.[1] ?? part;
    text.split(/(`[^`\n]+`)/).forEach((piece) => {
      const code = !fence && piece.length > 2 && piece.startsWith("`") && piece.endsWith("`");
      block.append(code ? Object.assign(document.createElement("code"), { textContent: plainText(piece.slice(1, -1)) }) : plainText(piece.replaceAll("**", "")));
    });
    box.append(block);
  }
  return box;
}

function completionSource({ language, name, run, onCompleted }: EditorOptions) {
  return async (context: CompletionContext): Promise<CompletionResult | null> => {
    // While somebody types: after a letter, and where a name, a path or a value begins.
    if (!context.explicit && !context.matchBefore(/[\w$:.{|-]$/)) return null;
    const began = performance.now();
    const stop = new AbortController();
    context.addEventListener("abort", () => stop.abort());
    const items = await language.complete(context.state.doc.toString(), name(), context.pos, run(), stop.signal).catch(() => []);
    const first = items[0];
    if (context.aborted || !first) return null;
    onCompleted?.(performance.now() - began);
    return { from: Math.min(first.start, context.pos), options: items.map(toOption), validFor: /^[\w$:-]*$/ };
  };
}

function hoverSource({ language, name, run }: EditorOptions) {
  return async (view: EditorView, at: number): Promise<Tooltip | null> => {
    const text = view.state.doc.toString();
    const found: Hover | null = await language.hover(text, name(), at, run()).catch(() => null);
    if (!found || view.state.doc.toString() !== text) return null;
    return {
      pos: found.start,
      end: found.end,
      above: true,
      create: () => {
        const dom = prose(found.contents);
        if (found.type) dom.prepend(Object.assign(document.createElement("code"), { className: "cm-type", textContent: plainText(found.type) }));
        return { dom };
      },
    };
  };
}

/** Control characters and marks that reorder text are shown as their codes. */
const codes = highlightSpecialChars({
  addSpecialChars: /[\u202a-\u202c\u2060-\u2064\u2068\u206a-\u206f]/,
  render: (code) => Object.assign(document.createElement("span"), { className: "cm-code", textContent: `U+${code.toString(16).toUpperCase().padStart(4, "0")}` }),
});

/** What is typed over several lines: left to itself, the browser joins them with style attributes, which the policy refuses. */
const overLines = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { data, inputType } = event;
    const { main } = view.state.selection;
    if (inputType !== "insertText" || data === null || view.composing || view.state.doc.lineAt(main.from).to >= main.to) return false;
    event.preventDefault();
    view.dispatch(view.state.replaceSelection(data), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

const theme = EditorView.theme({
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--text)" },
  ".cm-selected-step": { backgroundColor: "var(--selected)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 28%, transparent)" },
  ".cm-matchingBracket": { backgroundColor: "var(--sunken)", outline: "1px solid var(--border-strong)" },
  ".cm-code": { font: "600 10px/14px var(--mono)", color: "var(--in-doubt-fg)", background: "var(--in-doubt-bg)", borderRadius: "3px", padding: "0 3px", margin: "0 1px" },
  ".cm-finding-space": { padding: "3px 12px 3px 8px" },
  ".cm-finding": { padding: "5px 10px", border: "1px solid var(--failed-bd)", borderRadius: "6px", background: "var(--failed-bg)", color: "var(--text)", font: "var(--t-12)", whiteSpace: "pre-wrap", overflowWrap: "anywhere" },
  ".cm-finding.warning": { borderColor: "var(--waiting-bd)", background: "var(--waiting-bg)" },
  ".cm-finding-row": { display: "flex", flexWrap: "wrap", gap: "8px", alignItems: "center", marginTop: "3px", color: "var(--text-2)" },
  ".cm-finding button": { minHeight: "24px", padding: "0 8px", border: "1px solid var(--border)", borderRadius: "6px", background: "var(--surface)", color: "var(--text)", font: "500 12px/18px var(--font)", cursor: "pointer" },
  ".cm-finding kbd": { marginInlineStart: "6px", font: "500 11px/16px var(--font)", color: "var(--text-3)", border: "1px solid var(--border)", borderRadius: "4px", padding: "0 4px" },
  ".cm-finding code, .cm-prose code": { font: "var(--m-11)" },
  ".cm-tooltip": { background: "var(--raised)", color: "var(--text)", border: "1px solid var(--border)", borderRadius: "8px", boxShadow: "var(--shadow-2)", font: "var(--t-12)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { font: "var(--m-12)", maxHeight: "240px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 8px", display: "flex", gap: "8px", alignItems: "center" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent-soft)", color: "var(--text)" },
  ".cm-completionLabel": { flex: "1" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionDetail": { color: "var(--text-3)", fontStyle: "normal", marginInlineStart: "16px", maxWidth: "260px", overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "nowrap" },
  ".cm-tooltip.cm-completionInfo": { maxWidth: "340px", padding: "0" },
  ".cm-prose": { padding: "6px 10px", maxWidth: "420px", maxHeight: "260px", overflow: "auto", overflowWrap: "anywhere" },
  ".cm-prose p, .cm-prose pre": { margin: "0 0 4px", whiteSpace: "pre-wrap" },
  ".cm-prose pre": { font: "var(--m-11)", background: "var(--sunken)", padding: "4px 6px", borderRadius: "4px" },
  ".cm-prose .cm-type": { display: "block", color: "var(--code-expr)", marginBottom: "4px" },
  ".cm-panels": { background: "var(--sunken)", color: "var(--text)", borderColor: "var(--border)" },
  ".cm-panels input, .cm-panels button": { font: "var(--t-12)", color: "var(--text)", background: "var(--surface)", border: "1px solid var(--border-strong)", borderRadius: "4px", backgroundImage: "none" },
  ".cm-searchMatch": { backgroundColor: "var(--waiting-bg)", outline: "1px solid var(--waiting-bd)" },
});

export function editorExtensions(options: EditorOptions): Extension {
  return [
    lineNumbers(),
    foldGutter(),
    marks,
    tokens,
    overLines,
    codes,
    highlightActiveLine(),
    highlightActiveLineGutter(),
    drawSelection(),
    indentOnInput(),
    indentUnit.of("  "),
    EditorState.tabSize.of(2),
    bracketMatching(),
    highlightSelectionMatches(),
    autocompletion({ override: [completionSource(options)], activateOnTypingDelay: 20, icons: false, interactionDelay: 40 }),
    hoverTooltip(hoverSource(options), { hoverTime: 350 }),
    EditorView.contentAttributes.of({ "aria-label": options.label, tabindex: "0" }),
    keymap.of([
      { key: "Tab", run: (view) => completionStatus(view.state) === "active" && acceptCompletion(view) },
      { key: "Ctrl-]", mac: "Cmd-]", run: indentMore },
      { key: "Ctrl-[", mac: "Cmd-[", run: indentLess },
      { key: "Ctrl-Space", run: startCompletion },
      ...completionKeymap,
      ...searchKeymap,
      ...historyKeymap,
      ...foldKeymap,
      // `Ctrl Enter` runs, on every screen.
      ...defaultKeymap.filter((one) => one.key !== "Mod-Enter"),
    ]),
    options.format === "json" ? json() : yaml(),
    syntaxHighlighting(codeColours),
    codeTheme,
    theme,
  ];
}

/** Shows a document in `host` until the returned function is called. */
export function mountEditor(host: HTMLElement, builderDocument: BuilderDocument): { view: EditorView; end: () => void } {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const view = new EditorView({
    root,
    parent: root,
    state: builderDocument.state,
    dispatchTransactions: (transactions, target) => {
      target.update(transactions);
      builderDocument.received(transactions, target.state);
    },
  });
  const detach = builderDocument.attach(view);
  return {
    view,
    end: () => {
      detach();
      view.destroy();
    },
  };
}
