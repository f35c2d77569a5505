import { afterEach, describe, expect, it, vi } from "vitest";
import { Builder } from "./builder";
import type { Language } from "./language";
import type { Analysis } from "./model";

const TEXT = "steps:\n  - id: a\n  - id: b\n";
const spans = (text: string) => [...text.matchAll(/- id: (\w+)/g)].map((match) => ({ step: match[1] ?? "", start: match.index, end: match.index + match[0].length }));
const steps = (text: string) => spans(text).map(({ step: id }) => ({ id, kind: "tool", tool: "x:y", needs: [], effect: "reads", rollback: { kind: "not_needed" }, confirms: false })) as Analysis["steps"];

function made(edit: Language["edit"]) {
  const language: Language = {
    analyze: (text) => Promise.resolve({ hash: "", valid: true, findings: [], steps: steps(text), tokens: [], spans: spans(text) }),
    complete: () => Promise.resolve([]),
    hover: () => Promise.resolve(null),
    actions: () => Promise.resolve([]),
    edit,
  };
  const builder = new Builder(language, TEXT, { path: "a.yaml", hash: "1" });
  ends.push(() => builder.end());
  return builder;
}
const ends: (() => void)[] = [];
afterEach(() => ends.splice(0).forEach((end) => end()));
const checked = (builder: Builder) => vi.waitFor(() => expect(builder.analyzer.snapshot().current).toBe(true));
const text = (builder: Builder) => builder.document.snapshot().text;

describe("the builder", () => {
  it("asks again when the text was changed while the server computed an edit", async () => {
    const asked: string[] = [];
    const builder = made(async (now) => {
      asked.push(now);
      if (asked.length === 1) builder.document.dispatch({ changes: { from: 0, insert: "# new\n" }, userEvent: "input.type" });
      return { edits: [{ start: now.length, end: now.length, text: "  - id: c\n" }] };
    });
    expect(await builder.edit({ kind: "add_step", step: { id: "c" }, place: { at: "last_in" } })).toBeNull();
    expect(asked).toHaveLength(2);
    expect(text(builder)).toBe(`# new\n${TEXT}  - id: c\n`);
    builder.undo();
    expect(text(builder)).toBe(`# new\n${TEXT}`);
  });

  it("makes one change after the other, each of the text that the one before left", async () => {
    const builder = made(async (now, _, edit) => {
      await Promise.resolve();
      return { edits: [{ start: now.length, end: now.length, text: `  - id: ${edit.kind === "rename_step" ? edit.to : "?"}\n` }] };
    });
    await Promise.all(["c", "d"].map((to) => builder.edit({ kind: "rename_step", step: "a", to })));
    expect(text(builder)).toBe(`${TEXT}  - id: c\n  - id: d\n`);
  });

  it("says why a change was refused, and leaves the text alone", async () => {
    const builder = made(() => Promise.reject(new Error("no step `z`")));
    expect(await builder.edit({ kind: "remove_step", step: "z" })).toBe("no step `z`");
    expect(builder.snapshot().refusal).toBe("no step `z`");
    expect(text(builder)).toBe(TEXT);
    expect(builder.document.snapshot()).toMatchObject({ dirty: false, canUndo: false });
  });

  it("follows the cursor with the selection, and the selection with the cursor", async () => {
    const builder = made(() => Promise.resolve({ edits: [] }));
    await checked(builder);
    builder.document.dispatch({ selection: { anchor: TEXT.indexOf("id: b") }, userEvent: "select.pointer" });
    expect(builder.snapshot().selected).toBe("b");
    builder.select("a");
    expect(builder.document.snapshot().cursor).toBe(TEXT.indexOf("- id: a"));
    expect(builder.snapshot().selected).toBe("a");
    builder.document.dispatch({ selection: { anchor: 0 }, userEvent: "select" });
    expect(builder.snapshot().selected).toBeNull();
  });

  it("selects a step that was added as soon as it is known", async () => {
    const builder = made((now) => Promise.resolve({ edits: [{ start: now.length, end: now.length, text: "  - id: c\n" }] }));
    await checked(builder);
    await builder.edit({ kind: "add_step", step: { id: "c" }, place: { at: "last_in" } });
    await vi.waitFor(() => expect(builder.document.snapshot().cursor).toBe(text(builder).indexOf("- id: c")));
    expect(builder.snapshot().selected).toBe("c");
  });

  it("knows the steps of the saved text until it is saved again", async () => {
    const builder = made((now) => Promise.resolve({ edits: [{ start: now.indexOf("  - id: b"), end: now.length, text: "" }] }));
    await checked(builder);
    await builder.edit({ kind: "remove_step", step: "b" });
    await vi.waitFor(() => expect(builder.steps).toHaveLength(1));
    expect(builder.snapshot().savedSteps?.map((one) => one.id)).toEqual(["a", "b"]);
    builder.saved(text(builder), { path: "a.yaml", hash: "2" });
    expect(builder.snapshot().savedSteps?.map((one) => one.id)).toEqual(["a"]);
  });
});
