import { describe, expect, it } from "vitest";
import type { ComparedStep } from "@/api/types";
import { delta, differs, verdict } from "./rows";

const side = { status: "success" as const, duration_ms: 1000, attempts: 1 };
const step = (more: Partial<ComparedStep>): ComparedStep => ({ id: "a", left: side, right: side, input: "same", output: "same", differences: [], ...more });

describe("compare", () => {
  it("finds what differs", () => {
    expect(differs(step({}))).toBe(false);
    expect(differs(step({ output: "differs" }))).toBe(true);
    expect(differs(step({ right: null, output: "absent" }))).toBe(true);
    expect(verdict(step({ right: { ...side, status: "failed" }, output: "differs" }))).toBe("status, output differ");
    expect(verdict(step({ left: null }))).toBe("only in the right run");
  });
  it("says how much longer the right run took", () => {
    expect([delta(1000, 2200), delta(1000, 700), delta(1000, 1020), delta(1, 5)]).toEqual(["+1.20 s", "−0.30 s", "", ""]);
  });
});
