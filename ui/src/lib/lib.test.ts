import { describe, expect, it } from "vitest";
import { expression, pointer } from "./expression";
import { bytes, clock, duration, shortId } from "./format";
import { isCut, treeRows } from "./json-rows";
import { itemOf, outermost, parentPath, placePath, planPath, segments } from "./path";
import { cut, plainText, textParts } from "./safe-text";
import { flag, list, oneOf, text } from "./search";

describe("format", () => {
  it("writes durations in the unit that a person reads", () => {
    expect([0, 380, 12_700, 75_000, 4 * 3_600_000 + 120_000].map(duration)).toEqual(["0.00 s", "0.38 s", "12.7 s", "1 m 15 s", "4 h 02 m"]);
  });
  it("writes the clock time of today and the day of others", () => {
    const now = new Date(2026, 10, 18, 12, 0, 0);
    expect(clock(new Date(2026, 10, 18, 9, 5, 7).toISOString(), now)).toBe("09:05:07");
    expect(clock(new Date(2026, 10, 17, 9, 5, 7).toISOString(), now)).toBe("17 Nov 09:05");
  });
  it("writes sizes and short ids", () => {
    expect([bytes(900), bytes(5400), bytes(100 * 1024 * 1024)]).toEqual(["900 B", "5.3 KB", "100.0 MB"]);
    expect(shortId("01a1ee6e-8f0f-7000-99fc-5229ede8b097")).toBe("e8b097");
  });
});

describe("path", () => {
  it("reads items and visits", () => {
    expect(segments("a[2]/b#3")).toEqual([{ id: "a", item: 2 }, { id: "b#3", item: null }]);
    expect(planPath("a[2]/b#3/c~undo/d")).toBe("a/b/c/d");
  });
  it("find the step of the composition that holds them", () => {
    expect(["a", "a[1]", "a#2", "a[1]/b[2]/c", "a~undo/b"].map(outermost)).toEqual(["a", "a", "a", "a", "a"]);
  });
  it("goes up through items", () => {
    const up: (string | null)[] = [];
    for (let path: string | null = "a[1]/b[2]/c"; path; path = parentPath(path)) up.push(path);
    expect(up).toEqual(["a[1]/b[2]/c", "a[1]/b[2]", "a[1]/b", "a[1]", "a"]);
  });
  it("places a plan's step in chosen items", () => {
    expect(placePath("a/b/c", { a: 1, "a[1]/b": 2 })).toBe("a[1]/b[2]/c");
    expect(itemOf("a[12]/b", "a")).toBe(12);
    expect(itemOf("ab[12]/b", "a")).toBeNull();
  });
});

describe("expression", () => {
  it("names values as compositions do", () => {
    expect(expression("release", ["assets", 0, "name"])).toBe("{{ release.assets[0].name }}");
    expect(expression("my-step", ["a b", "it's"])).toBe("{{ steps['my-step'].output['a b']['it\\'s'] }}");
    expect(pointer(["a/b", 0, "~"])).toBe("/a~1b/0/~0");
  });
});

describe("safe text", () => {
  it("shows control and reordering characters as codes", () => {
    expect(textParts("a\u202Eb\u0000")).toEqual([
      { text: "a", code: false },
      { text: "U+202E", code: true },
      { text: "b", code: false },
      { text: "U+0000", code: true },
    ]);
    expect(plainText("\u{E0041}x")).toBe("⟨U+E0041⟩x");
  });
  it("keeps line breaks, tabs and letters of any script", () => {
    expect(textParts("a\n\tمرحبا 🎉")).toEqual([{ text: "a\n\tمرحبا 🎉", code: false }]);
  });
  it("does not cut through a surrogate pair", () => {
    expect(cut("ab🎉", 3)).toBe("ab…");
    expect(cut("abc", 3)).toBe("abc");
  });
});

describe("tree rows", () => {
  const walk = { isOpen: (_: string, depth: number) => depth < 2, shown: () => 100, loaded: () => undefined };
  it("shows only what is open", () => {
    const rows = treeRows({ a: [1, [2]], b: "x" }, walk);
    expect(rows.map((row) => [row.depth, row.kind, row.keys.join(".")])).toEqual([
      [0, "object", ""],
      [1, "array", "a"],
      [2, "number", "a.0"],
      [2, "array", "a.1"],
      [1, "string", "b"],
    ]);
  });
  it("offers the rest of a long array", () => {
    const rows = treeRows(Array.from({ length: 250 }, (_, i) => i), walk);
    expect(rows).toHaveLength(102);
    expect(rows.at(-1)).toMatchObject({ kind: "more", length: 150 });
  });
  it("shows a cut value by its preview, with the whole one's size", () => {
    const value = { $cut: { kind: "array" as const, bytes: 1_000_000, length: 20_000, preview: [1, 2] } };
    expect(isCut(value)).toBe(true);
    const rows = treeRows(value, walk);
    expect(rows[0]).toMatchObject({ kind: "array", length: 20_000, cutBytes: 1_000_000 });
    expect(rows.at(-1)).toMatchObject({ kind: "more", length: 19_998 });
  });
  it("does not take a tool's own `$cut` for a cut value", () => {
    expect(isCut({ $cut: "x" })).toBe(false);
    expect(isCut({ $cut: { kind: "string", bytes: 1, length: 1 }, more: 1 })).toBe(false);
  });
});

describe("search parameters", () => {
  it("drops what it does not know", () => {
    const search = { q: "", n: 12, status: "nope", flag: "true", list: ["a", 1] };
    expect(text(search, "q")).toBeUndefined();
    expect(text(search, "n")).toBe("12");
    expect(oneOf(search, "status", ["failed"])).toBeUndefined();
    expect(flag(search, "flag")).toBe(true);
    expect(list(search, "list")).toEqual(["a"]);
  });
});
