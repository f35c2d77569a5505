import { act, cleanup, render, screen, waitFor } from "@testing-library/react";
import { EditorView } from "@codemirror/view";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { accessibility, stubMeasuring } from "@/screens/builder/testing";
import { brief } from "./brief";
import { ExpressionField } from "./ExpressionField";
import { mount, type Mirror, type MirrorOptions } from "./expression-mirror";
import { insideExpression, words } from "./lexer";
import type { ExpressionCompletion, ExpressionService } from "./types";

beforeEach(stubMeasuring);
afterEach(() => {
  cleanup();
  vi.useRealTimers();
  document.body.replaceChildren();
});

const coloured = (text: string, condition = false) => words(text, condition).map((word) => `${word.kind} ${text.slice(word.from, word.to)}`);

describe("words of an expression", () => {
  it("are found between braces only", () => {
    expect(coloured("a {{ b.c | join(', ') }} d {{ 1 }}")).toEqual(["brace {{", "name b", "member c", "filter join", "text ', '", "brace }}", "brace {{", "number 1", "brace }}"]);
  });
  it("are found everywhere in a condition", () => {
    expect(coloured("a.n is defined and not x['}}']", true)).toEqual(["name a", "member n", "keyword is", "filter defined", "keyword and", "keyword not", "name x", "text '}}'"]);
  });
  it("end at the end of a text that is not finished", () => {
    expect(coloured("{{ a.'")).toEqual(["brace {{", "name a", "text '"]);
    expect(coloured("{{ {{ a")).toHaveLength(2);
  });
  it("say where names can be completed", () => {
    expect([0, 2, 5, 9, 10].map((at) => insideExpression("{{ a.b }} c", at, false))).toEqual([false, true, true, false, false]);
    expect(insideExpression("a.", 2, true)).toBe(true);
  });
  it("of a hostile text are found in time", () => {
    const from = performance.now();
    words("{{ '".repeat(5000), false);
    words("{{".repeat(10_000), false);
    words("{{ a }}".repeat(3000), false);
    expect(performance.now() - from).toBeLessThan(3000);
  });
});

describe("a value in a few words", () => {
  it("cuts at any depth and size", () => {
    expect(brief({ a: [1, "x", null], b: { c: { d: { e: 1 } } } })).toBe('{a: [1, "x", null], b: {c: {d: {…}}}}');
    expect(brief("x".repeat(10_000_000)).length).toBeLessThan(130);
    expect(brief(Array.from({ length: 1_000_000 }, () => ({ a: 1 }))).length).toBeLessThan(130);
    expect(brief({ $cut: { kind: "array", bytes: 2048, length: 9, preview: [] } })).toBe("array of 9, 2.0 KB");
  });
});

const item = (label: string, start: number, end: number, more: Partial<ExpressionCompletion> = {}): ExpressionCompletion => ({ label, kind: "field", detail: "string", required: false, start, end, text: label, ...more });

function edit(value: string, more: Partial<MirrorOptions> = {}): { mirror: Mirror; root: ShadowRoot; changed: string[] } {
  const host = document.createElement("div");
  document.body.append(host);
  const changed: string[] = [];
  const mirror = mount(host, { value, label: "body", condition: false, autoFocus: false, onChange: (text) => changed.push(text), complete: () => Promise.resolve([]), ...more });
  return { mirror, root: host.shadowRoot as ShadowRoot, changed };
}
const typeText = ({ view }: Mirror, text: string) => view.dispatch({ changes: { from: view.state.selection.main.head, insert: text }, selection: { anchor: view.state.selection.main.head + text.length }, userEvent: "input.type" });
const press = (root: ShadowRoot, key: string, more: KeyboardEventInit = {}) => {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, composed: true, ...more });
  root.querySelector(".cm-content")?.dispatchEvent(event);
  return event;
};
const options = (root: ShadowRoot) => [...root.querySelectorAll("[role=option]")].map((one) => one.textContent);

describe("the expression editor", () => {
  it("offers completions while a name is typed, and takes the chosen one with Enter", async () => {
    const { mirror, root, changed } = edit("{{ notes. }}", { complete: (_, at) => Promise.resolve([item("folded", at, at), item("summary", at, at, { required: true })]) });
    mirror.view.dispatch({ selection: { anchor: 9 } });
    typeText(mirror, "f");
    await waitFor(() => expect(options(root)).toEqual(["folded string", "summary required string"]));
    const content = root.querySelector(".cm-content") as HTMLElement;
    expect(content.getAttribute("aria-activedescendant")).toBe("completion-0");
    press(root, "ArrowDown");
    expect(root.querySelector("[aria-selected=true]")?.textContent).toContain("summary");
    expect(content.getAttribute("aria-activedescendant")).toBe("completion-1");
    press(root, "Enter");
    expect(changed.at(-1)).toBe("{{ notes.fsummary }}");
    expect(options(root)).toEqual([]);
  });

  it("closes the list with Escape, which then stays in the editor, and leaves Tab to the page", async () => {
    const { mirror, root } = edit("", { condition: true, complete: () => Promise.resolve([item("input", 0, 1)]) });
    typeText(mirror, "i");
    await waitFor(() => expect(options(root)).toHaveLength(1));
    const outside = vi.fn();
    document.addEventListener("keydown", outside);
    press(root, "Escape");
    expect(options(root)).toEqual([]);
    expect(outside).not.toHaveBeenCalled();
    expect(press(root, "Tab").defaultPrevented).toBe(false);
    document.removeEventListener("keydown", outside);
  });

  it("puts the list below the editor in the flow of the page", async () => {
    const { mirror, root } = edit("", { condition: true, complete: () => Promise.resolve([item("input", 0, 1)]) });
    typeText(mirror, "i");
    await waitFor(() => expect(options(root)).toHaveLength(1));
    const list = root.querySelector("ul") as HTMLElement;
    expect(list.previousElementSibling?.classList.contains("cm-editor")).toBe(true);
    expect(getComputedStyle(list).position).not.toBe("absolute");
    expect(document.querySelector("style")).toBeNull();
  });

  it("drops answers to older texts", async () => {
    vi.useFakeTimers();
    const answers: ((items: ExpressionCompletion[]) => void)[] = [];
    const { mirror, root } = edit("{{ ", { complete: () => new Promise((resolve) => answers.push(resolve)) });
    mirror.view.dispatch({ selection: { anchor: 3 } });
    typeText(mirror, "a");
    await vi.advanceTimersByTimeAsync(50);
    typeText(mirror, "b");
    await vi.advanceTimersByTimeAsync(50);
    answers[1]?.([item("new", 3, 5)]);
    await vi.advanceTimersByTimeAsync(0);
    answers[0]?.([item("old", 3, 4)]);
    await vi.advanceTimersByTimeAsync(0);
    expect(options(root)).toEqual(["new string"]);
  });

  it("opens no list after the focus has left", async () => {
    vi.useFakeTimers();
    let answer: (items: ExpressionCompletion[]) => void = () => {};
    const { mirror, root } = edit("", { condition: true, complete: () => new Promise((resolve) => (answer = resolve)) });
    typeText(mirror, "a");
    await vi.advanceTimersByTimeAsync(50);
    root.querySelector(".cm-content")?.dispatchEvent(new FocusEvent("blur"));
    answer([item("late", 0, 1)]);
    await vi.advanceTimersByTimeAsync(0);
    expect(options(root)).toEqual([]);
  });

  it("shows hostile completions as text, and refuses places outside of the draft", async () => {
    const { mirror, root } = edit("", { condition: true, complete: () => Promise.resolve([item("<img src=x>\u202e", 0, 1), item("x", -5, 99)]) });
    typeText(mirror, "i");
    await waitFor(() => expect(options(root)).toEqual(["<img src=x>⟨U+202E⟩ string"]));
    expect(root.querySelector("img")).toBeNull();
  });

  it("keeps the cursor when the text changes from outside", () => {
    const { mirror, changed } = edit("{{ a.b }} c");
    mirror.view.dispatch({ selection: { anchor: 6 } });
    mirror.setValue("{{ a.b }} changed");
    expect(mirror.view.state.selection.main.head).toBe(6);
    expect(changed).toEqual([]);
  });

  it("lists what begins with the typed letters first", async () => {
    const { mirror, root } = edit("", { condition: true, complete: () => Promise.resolve([item("capitalize", 0, 1), item("lines", 0, 1), item("Length", 0, 1)]) });
    typeText(mirror, "l");
    await waitFor(() => expect(options(root)).toEqual(["lines string", "Length string", "capitalize string"]));
  });

  it("types over a selection by itself, so that the browser writes no inline style", () => {
    const { mirror, root } = edit("{{ a.b }}");
    mirror.view.dispatch({ selection: { anchor: 0, head: 9 } });
    const event = new InputEvent("beforeinput", { inputType: "insertText", data: "x", cancelable: true, bubbles: true });
    root.querySelector(".cm-content")?.dispatchEvent(event);
    expect(event.defaultPrevented).toBe(true);
    expect(mirror.view.state.doc.toString()).toBe("x");
  });

  it("asks for nothing outside of braces", async () => {
    vi.useFakeTimers();
    const complete = vi.fn(() => Promise.resolve([]));
    const { mirror } = edit("", { complete });
    typeText(mirror, "words");
    await vi.advanceTimersByTimeAsync(200);
    expect(complete).not.toHaveBeenCalled();
  });
});

describe("the field of an expression", () => {
  const field = (value: string, service: Partial<ExpressionService>, more: { version?: unknown; misfit?: (value: unknown) => string | null } = {}) => (
    <ExpressionField id="f" label="body" value={value} onChange={() => {}} service={{ complete: () => Promise.resolve([]), preview: () => Promise.resolve({}), ...service }} {...more} />
  );
  const line = () => document.querySelector(".prev")?.textContent;

  it("shows the value, its type, and whether it fits", async () => {
    render(field("{{ a }}", { preview: () => Promise.resolve({ type: "string", value: "site" }) }, { misfit: () => null }));
    await waitFor(() => expect(line()).toBe('="site"stringfits'));
    cleanup();
    render(field("{{ a }}", { preview: () => Promise.resolve({ type: "string", value: "site" }) }, { misfit: () => "must be integer" }));
    await waitFor(() => expect(line()).toBe('="site"stringmust be integer'));
  });

  it("says why it fails, and hostile words as text", async () => {
    render(field("{{ a }}", { preview: () => Promise.resolve({ error: "`notes` has no <b>fol</b>\u0000" }) }));
    await waitFor(() => expect(line()).toBe("`notes` has no <b>fol</b>U+0000"));
    expect(document.querySelector("b")).toBeNull();
  });

  it("asks once for what was typed in a moment, and drops stale answers", async () => {
    vi.useFakeTimers();
    const answers = new Map<string, (value: { value: unknown }) => void>();
    const preview = vi.fn((draft: string) => new Promise<{ value: unknown }>((resolve) => answers.set(draft, resolve)));
    const { rerender } = render(field("a", { preview }));
    rerender(field("ab", { preview }));
    rerender(field("abc", { preview }));
    await act(() => vi.advanceTimersByTimeAsync(61));
    expect(preview.mock.calls.map(([draft]) => draft)).toEqual(["abc"]);
    rerender(field("abcd", { preview }));
    await act(() => vi.advanceTimersByTimeAsync(61));
    await act(async () => answers.get("abcd")?.({ value: "new" }));
    await act(async () => answers.get("abc")?.({ value: "old" }));
    expect(line()).toBe('="new"');
  });

  it("answers within 100 ms of the last key when the server is quick", async () => {
    vi.useFakeTimers();
    render(field("{{ a }}", { preview: () => new Promise((resolve) => setTimeout(() => resolve({ value: 1 }), 30)) }));
    await act(() => vi.advanceTimersByTimeAsync(99));
    expect(line()).toBe("=1");
  });

  it("does not put what comes back late in place of what is typed", async () => {
    const values: string[] = [];
    const shown = (value: string) => <ExpressionField id="f" label="body" value={value} onChange={(text) => values.push(text)} service={{ complete: () => Promise.resolve([]), preview: () => Promise.resolve({}) }} />;
    const { rerender } = render(shown("{{  }}"));
    const root = () => document.querySelector(".exprfield")?.shadowRoot;
    await waitFor(() => expect(root()?.querySelector(".cm-content")).not.toBeNull());
    const view = EditorView.findFromDOM(root()?.querySelector(".cm-content") as HTMLElement) as EditorView;
    view.dispatch({ selection: { anchor: 3 } });
    for (const letter of ["i", "n"]) view.dispatch({ changes: { from: view.state.selection.main.head, insert: letter }, selection: { anchor: view.state.selection.main.head + 1 }, userEvent: "input.type" });
    rerender(shown(values[0] ?? ""));
    expect([view.state.doc.toString(), view.state.selection.main.head]).toEqual(["{{ in }}", 5]);
    rerender(shown(values[1] ?? ""));
    rerender(shown("{{ i }}"));
    expect(view.state.doc.toString()).toBe("{{ i }}");
  });

  it("does not send or colour a text of 10 MB", async () => {
    vi.useFakeTimers();
    const preview = vi.fn(() => Promise.resolve({}));
    render(field("{{ a }}".repeat(10_000), { preview }));
    await act(() => vi.advanceTimersByTimeAsync(500));
    expect(preview).not.toHaveBeenCalled();
    expect(line()).toBe("too long for a preview");
  });

  it("has no finding of axe", async () => {
    render(field("{{ a }}", { preview: () => Promise.resolve({ value: { a: 1 } }) }));
    await waitFor(() => expect(document.querySelector(".exprfield")?.shadowRoot?.querySelector(".cm-content")).not.toBeNull());
    expect(await accessibility()).toEqual([]);
    expect(screen.queryByRole("listbox")).toBeNull();
  });
});
