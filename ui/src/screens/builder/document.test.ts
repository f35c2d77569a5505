import { describe, expect, it } from "vitest";
import { BuilderDocument, difference } from "./document";

const type = (document: BuilderDocument, at: number, text: string) => document.dispatch({ changes: { from: at, insert: text }, selection: { anchor: at + text.length }, userEvent: "input.type" });
const text = (document: BuilderDocument) => document.snapshot().text;

describe("the text of a composition", () => {
  it("has one history for what is typed and for what the graph does", () => {
    const document = new BuilderDocument("a: 1\nb: 2\n", "a: 1\nb: 2\n");
    type(document, 4, "0");
    expect(document.apply([{ start: 0, end: 1, text: "x" }, { start: 6, end: 7, text: "y" }], 1)).toBe(true);
    type(document, 5, "0");
    expect(text(document)).toBe("x: 100\ny: 2\n");
    document.undo();
    expect(text(document)).toBe("x: 10\ny: 2\n");
    document.undo();
    expect(text(document)).toBe("a: 10\nb: 2\n");
    document.undo();
    expect(text(document)).toBe("a: 1\nb: 2\n");
    document.redo();
    document.redo();
    expect(text(document)).toBe("x: 10\ny: 2\n");
  });

  it("refuses edits that are for another version of it", () => {
    const document = new BuilderDocument("abc", "abc");
    const { version } = document.snapshot();
    type(document, 0, "x");
    expect(document.apply([{ start: 0, end: 1, text: "" }], version)).toBe(false);
    expect(text(document)).toBe("xabc");
  });

  it("knows what is unsaved, also after undo and while it is saved", () => {
    const document = new BuilderDocument("a", "a");
    expect(document.snapshot()).toMatchObject({ dirty: false, changes: 0, canUndo: false });
    document.apply([{ start: 1, end: 1, text: "b" }], 0);
    document.apply([{ start: 2, end: 2, text: "c" }], 1);
    expect(document.snapshot()).toMatchObject({ dirty: true, changes: 2 });
    document.markSaved("ab");
    expect(document.snapshot()).toMatchObject({ dirty: true });
    document.undo();
    expect(document.snapshot()).toMatchObject({ dirty: false, changes: 0 });
    expect(new BuilderDocument("new", null).snapshot().dirty).toBe(true);
  });

  it("tells of changes, and of moves of the cursor as such", () => {
    const document = new BuilderDocument("abc", "abc");
    const seen: string[] = [];
    document.onChange(({ changes, event }) => seen.push(`${event} ${changes !== null}`));
    type(document, 1, "x");
    document.dispatch({ selection: { anchor: 0 }, userEvent: "select" });
    document.apply([{ start: 0, end: 1, text: "" }], 1);
    document.undo();
    expect(seen).toEqual(["input.type true", "select false", "edit true", "undo true"]);
  });

  it("is replaced only where it differs", () => {
    expect(difference("one two three", "one 2 three")).toEqual([{ start: 4, end: 7, text: "2" }]);
    expect(difference("aa", "aaa")).toEqual([{ start: 2, end: 2, text: "a" }]);
    expect(difference("same", "same")).toEqual([]);
    const document = new BuilderDocument("one two", "one two");
    document.replace("one three");
    expect(text(document)).toBe("one three");
    document.undo();
    expect(text(document)).toBe("one two");
  });
});
