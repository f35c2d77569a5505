import { describe, expect, it } from "vitest";
import type { ComparedStep } from "@/api/types";
import { delta, differs, verdict } from "./rows";

const side = { status: "success" as const, duration_ms: 1000, attempts: 1, tool: "web:get" };
const step = (more: Partial<ComparedStep>): ComparedStep => ({ id: "a", left: side, right: side, differs: [], input: "same", output: "same", differences: [], ...more });

describe("compare", () => {
  it("says what differs", () => {
    expect([differs(step({})), verdict(step({}))]).toEqual([false, "same"]);
    expect(differs(step({ differs: ["output"] }))).toBe(true);
    expect(verdict(step({ differs: ["status", "output"] }))).toBe("status, output differ");
    expect(verdict(step({ left: null, differs: ["status"] }))).toBe("only in the right run");
  });
  it("says how much longer the right run took", () => {
    expect([delta(1000, 2200), delta(1000, 700), delta(1000, 1020), delta(1, 5)]).toEqual(["+1.20 s", "−0.30 s", "", ""]);
  });
});
