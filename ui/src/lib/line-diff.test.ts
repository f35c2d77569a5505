import { describe, expect, it } from "vitest";
import { hunks, lines, withHunks } from "./line-diff";

const diff = (before: string, after: string) => {
  const [b, a] = [lines(before), lines(after)];
  return { b, a, all: hunks(b, a) };
};
const put = (before: string, after: string, taken: (i: number) => boolean) => {
  const { b, a, all } = diff(before, after);
  return withHunks(b, a, all, taken);
};

describe("lines that differ", () => {
  it("are few", () => {
    expect(diff("a\nb\nc\n", "a\nx\nc\n").all).toEqual([{ b0: 1, b1: 2, a0: 1, a1: 2 }]);
    expect(diff("a\nb\nc\nd\n", "b\nc\nx\nd\ne\n").all).toEqual([
      { b0: 0, b1: 1, a0: 0, a1: 0 },
      { b0: 3, b1: 3, a0: 2, a1: 3 },
      { b0: 4, b1: 4, a0: 4, a1: 5 },
    ]);
    expect(diff("same\n", "same\n").all).toEqual([]);
    expect(diff("", "a").all).toEqual([{ b0: 0, b1: 0, a0: 0, a1: 1 }]);
  });

  it("put together give either text to the byte", () => {
    let seed = 7;
    const random = (n: number) => (seed = (seed * 1_103_515_245 + 12_345) & 0x7fffffff) % n;
    const text = () => Array.from({ length: random(12) }, () => `${"abc"[random(3)]}${["\n", "\r\n"][random(2)]}`).join("") + ["", "end"][random(2)];
    for (let i = 0; i < 3000; i++) {
      const [before, after] = [text(), text()];
      expect(put(before, after, () => false)).toBe(before);
      expect(put(before, after, () => true)).toBe(after);
    }
  });

  it("can be taken one by one", () => {
    const before = "a\nb\nc\nd\n";
    const after = "a\nB\nc\nD\ne\n";
    expect(put(before, after, (i) => i === 0)).toBe("a\nB\nc\nd\n");
    expect(put(before, after, (i) => i === 1)).toBe("a\nb\nc\nD\ne\n");
    expect(put("a", "a\nb\n", () => true)).toBe("a\nb\n");
  });

  it("of texts without a common line are one hunk, in time", () => {
    const side = (letter: string) => Array.from({ length: 20_000 }, (_, i) => `${letter}${i}`).join("\n");
    const from = performance.now();
    expect(diff(side("a"), side("b")).all).toHaveLength(1);
    expect(performance.now() - from).toBeLessThan(1500);
  });
});
