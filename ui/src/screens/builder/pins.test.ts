import { describe, expect, it } from "vitest";
import type { PlanStepView } from "@/api/types";
import { outermostOf, partOf } from "./part";
import { pinnedSteps, pinsOf } from "./pins";

const RECORDED = `tests:
  - name: recorded
    input: { name: Ada }
    tools:
      greet: { returns: { text: "Hello" } }
      "each[0]/say": { returns: 1 }
      flaky: [{ error: busy }, { returns: { n: 2 } }]
      broken: [{ error: busy }]
      "files:read": { returns: x }
`;

describe("pinned outputs", () => {
  it("are the answers for every test, and those of a recording", () => {
    const pins = pinsOf("a.test.yaml", RECORDED);
    expect([...pins.outputs]).toEqual([["greet", { text: "Hello" }], ["each[0]/say", 1], ["flaky", { n: 2 }]]);
    expect(pins.input).toEqual({ name: "Ada" });
    expect([...pinnedSteps(pins).keys()]).toEqual(["greet", "say", "flaky"]);
    // Of a test that a person wrote only what holds for every test.
    const written = pinsOf("a.test.yaml", "tools: { a: { returns: null } }\ntests: [{ name: works, tools: { b: { returns: 1 } } }]\n");
    expect([...written.outputs, written.input]).toEqual([["a", null], null]);
    expect(pinsOf("a.test.yaml", "").outputs.size).toBe(0);
  });
});

const step = (id: string, needs: string[] = [], more: Partial<PlanStepView> = {}): PlanStepView => ({ id, kind: "tool", tool: "a:b", needs, effect: "reads", rollback: { kind: "not_needed" }, confirms: false, ...more });

describe("a part of a composition", () => {
  const steps = [step("a"), step("b", ["a"], { output_key: "bee" }), step("other"), step("c", ["bee"]), step("d", ["c", "other"])];
  const ids = (until: string, ...pinned: string[]) => {
    const { performed, taken } = partOf(steps, until, new Set(pinned));
    return [...performed.map((one) => one.id), ...[...taken].map((one) => `pinned ${one}`)];
  };
  it("has the step and what it needs, and nothing behind a pinned one", () => {
    expect(ids("c")).toEqual(["a", "b", "c"]);
    expect(ids("d")).toEqual(["a", "b", "other", "c", "d"]);
    expect(ids("d", "b")).toEqual(["other", "c", "d", "pinned b"]);
    // Only what is taken: not the pin behind another one, and not that of the step itself.
    expect(ids("d", "a", "b", "d")).toEqual(["other", "c", "d", "pinned b"]);
    expect(ids("d", "c", "other")).toEqual(["d", "pinned other", "pinned c"]);
  });
  it("is of the outermost step", () => {
    const paths = new Map([["in", "each/in"], ["each", "each"]]);
    expect([outermostOf(paths, "in"), outermostOf(paths, "each"), outermostOf(paths, "gone")]).toEqual(["each", "each", "gone"]);
  });
});
