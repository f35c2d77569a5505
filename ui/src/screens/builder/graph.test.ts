import { describe, expect, it } from "vitest";
import type { PlanStepView } from "@/api/types";
import { layout } from "@/graph/layout";
import { fieldsOfSchema, fieldsOfValue, parametersOf } from "./connect";
import { edgeLabels, looksOf } from "./looks";
import { DRAG, type Finding } from "./model";
import { defaultPlace, mayMove, placeAt, places } from "./places";
import { readDrag } from "./drag";
import { findStep, freeId, pathsById, siblings, stepAt, withGhosts } from "./steps";
import { containerOf } from "./wrap";

const step = (id: string, needs: string[] = [], more: Partial<PlanStepView> = {}): PlanStepView => ({ id, kind: "tool", tool: "gh:get", needs, effect: "reads", rollback: { kind: "not_needed" }, confirms: false, ...more });
const loop = (id: string, inner: PlanStepView[], needs: string[] = []) => step(id, needs, { kind: "loop", tool: null, bodies: [{ label: "each x", steps: inner }] });
const choose = (id: string, cases: [string, PlanStepView[]][]) => step(id, [], { kind: "choose", tool: null, bodies: cases.map(([label, steps]) => ({ label, steps })) });
const plan = [step("a"), loop("each", [step("read"), step("put", ["read"])], ["a"]), choose("pick", [["when x", [step("yes")]], ["otherwise", []]]), step("last", ["each"])];

describe("steps by id", () => {
  it("have paths, and those of a called composition are not of this text", () => {
    const called = step("call", [], { tool: "composition:x", bodies: [{ label: "", steps: [step("a")] }] });
    expect([...pathsById([...plan, called])]).toEqual([["a", "a"], ["each", "each"], ["read", "each/read"], ["put", "each/put"], ["pick", "pick"], ["yes", "pick/yes"], ["last", "last"], ["call", "call"]]);
    expect(findStep(plan, "put")?.needs).toEqual(["read"]);
    expect(siblings(plan, "put").map((one) => one.id)).toEqual(["read", "put"]);
    expect(siblings(plan, "none")).toEqual([]);
  });
  it("are found at a position, the innermost first", () => {
    const spans = [{ step: "each", start: 0, end: 50 }, { step: "read", start: 10, end: 20 }, { step: "put", start: 21, end: 50 }];
    expect([0, 10, 20, 30, 50, 51].map((at) => stepAt(spans, at))).toEqual(["each", "read", "read", "put", "put", null]);
  });
  it("get ids that no step has", () => {
    expect(freeId("github:create release!", new Set())).toBe("create_release");
    expect(freeId("x", new Set(["x", "x_2"]))).toBe("x_3");
    expect(freeId("…", new Set())).toBe("step");
    expect(freeId("loop", new Set())).toBe("loop_step");
  });
});

describe("ghosts", () => {
  const now = [step("a"), loop("each", [step("read")], ["a"]), step("last")];
  it("stand after the step that they came after, also inside a loop, and need only what is there", () => {
    const { steps, ghosts } = withGhosts(now, plan, new Map());
    expect([...ghosts].sort()).toEqual(["each/put", "pick"]);
    expect(steps.map((one) => one.id)).toEqual(["a", "each", "pick", "last"]);
    expect(steps[1]?.bodies?.[0]?.steps.map((one) => one.id)).toEqual(["read", "put"]);
  });
  it("are not made of renamed or moved steps", () => {
    expect(withGhosts([step("b"), ...plan.slice(1)], plan, new Map([["a", "b"]])).ghosts.size).toBe(0);
    expect(withGhosts([...plan].reverse(), plan, new Map()).ghosts.size).toBe(0);
  });
});

describe("places of a new step", () => {
  const words = (steps: PlanStepView[], without: string | null = null) => places(steps, without).map((one) => one.words);
  it("are before the first, after each, and first in each body, in the order of the text", () => {
    expect(words(plan)).toEqual(["before a", "after a", "first in each", "after read", "after put", "after each", "first in pick, when x", "after yes", "first in pick, otherwise", "after pick", "after last"]);
    expect(places(plan).map((one) => JSON.stringify(one.place))).toContain('{"at":"first_in","step":"pick","body":"otherwise"}');
    expect(words([])).toEqual(["as the first step"]);
  });
  it("of a moved step are not those around it or inside it", () => {
    expect(words(plan, "each")).toEqual(["before a", "first in pick, when x", "after yes", "first in pick, otherwise", "after pick", "after last"]);
    expect(words(plan, "read")).not.toContain("first in each");
  });
  it("begin with the place after the selected step", () => {
    const all = places(plan);
    expect(all[defaultPlace(all, "read")]?.words).toBe("after read");
    expect(all[defaultPlace(all, null)]?.words).toBe("after last");
  });
  it("follow from the point of a drop", () => {
    const out = layout(plan, { collapsed: new Set(), strips: false });
    const at = (path: string, dx: number, dy: number) => {
      const node = out.nodes.find((one) => one.path === path);
      if (!node) throw new Error(path);
      return placeAt(out, plan, node.x + node.w * dx, node.y + node.h * dy)?.words;
    };
    expect(at("a", 0.5, 0.2)).toBe("before a");
    expect(at("a", 0.5, 0.9)).toBe("after a");
    expect(at("each/read", 0.5, 0.9)).toBe("after read");
    expect(at("each", 0.01, 0.99)).toBe("last in each");
    expect(at("pick:0", 0.02, 0.98)).toBe("last in pick, when x");
    expect(placeAt(out, plan, 0, 100_000)?.words).toMatch(/^after /);
    expect(placeAt(out, plan, 100, -500)?.words).toBe("before a");
    expect(placeAt(layout([], { collapsed: new Set(), strips: false }), [], 0, 0)?.words).toBe("as the first step");
  });
  it("are not inside the moved step", () => {
    const all = places(plan);
    const place = (text: string) => all.find((one) => one.words === text) ?? all[0]!;
    expect(mayMove(plan, "each", place("after put"))).toBe(false);
    expect(mayMove(plan, "each", place("first in each"))).toBe(false);
    expect(mayMove(plan, "a", place("after put"))).toBe(true);
  });
});

describe("what is dragged", () => {
  it("becomes an edit, and anything else becomes nothing", () => {
    const [place] = places([]);
    if (!place) throw new Error("no place");
    expect(readDrag(DRAG.step, '{"wanted":"get","step":{"tool":"gh:get"}}', new Set(["get"]))?.edit(place)).toEqual({ kind: "add_step", step: { id: "get_2", tool: "gh:get" }, place: { at: "last_in" } });
    expect(readDrag(DRAG.node, '{"id":"a"}', new Set())?.edit(place)).toEqual({ kind: "move_step", step: "a", place: { at: "last_in" } });
    for (const text of ["", "null", "7", "{}", '{"id":7}', '{"wanted":"x","step":null}']) for (const type of [DRAG.node, DRAG.step]) expect(readDrag(type, text, new Set())).toBeNull();
  });
  it("connects fields of values and of schemas", () => {
    expect(fieldsOfValue({ items: [{ title: "t", "a b": 1 }], n: 1, big: { $cut: {} } })).toEqual(["items", "items[0]", "items[0].title", "items[0]['a b']", "n", "big"]);
    expect(fieldsOfSchema({ type: "object", properties: { items: { type: "array", items: { properties: { title: {} } } } } })).toEqual(["items", "items[0]", "items[0].title"]);
    const endless: { properties: Record<string, unknown> } = { properties: {} };
    endless.properties.again = endless;
    expect(fieldsOfSchema(endless).length).toBeLessThan(10);
    expect([parametersOf({ properties: { a: {}, b: {} } }), parametersOf(true)]).toEqual([["a", "b"], []]);
  });
  it("wraps in what a composition writes", () => {
    expect(containerOf("loop", "")).toEqual({ loop: { over: [] } });
    expect(containerOf("loop", "{{ a.items }}")).toEqual({ loop: { over: "{{ a.items }}" } });
    expect(containerOf("choose", "")).toEqual({ choose: { when: "{{ true }}" } });
  });
});

describe("what the graph shows", () => {
  const finding = (severity: "error" | "warning", start: number) => ({ severity, start, end: start + 1, message: "m", code: "limit" }) as Finding;
  const spans = [{ step: "each", start: 10, end: 60 }, { step: "read", start: 20, end: 30 }];
  it("has the findings of each step on its node", () => {
    const looks = looksOf({ findings: [finding("error", 25), finding("error", 26), finding("warning", 27), finding("warning", 55), finding("error", 5)], spans, paths: pathsById(plan), ghosts: new Set(["gone"]), tools: [], down: new Set(["gh"]), steps: plan, pinned: new Set<string>(), run: new Map([["a", { state: "success", when: "0.1 s" }]]) });
    expect(looks.get("each/read")).toEqual({ when: "server down", corner: { text: "2 errors", tone: "failed", icon: "s-failed" } });
    expect(looks.get("each")?.corner?.text).toBe("1 warning");
    expect(looks.get("a")).toEqual({ state: "success", when: "0.1 s" });
    expect(looks.get("gone")?.ghost).toBe(true);
  });
  it("has on an edge which field goes into which parameter", () => {
    const text = `- id: a\n- id: b\n  parameters:\n    title: "on {{ a.items[0].name | upper }}"\n    n: "{{ a.n }}"\n    all: "{{ a }}"\n    other: "{{ c.x }}"\n`;
    const steps = [step("a"), step("b", ["a"])];
    expect(edgeLabels(text, [{ step: "b", start: text.indexOf("- id: b"), end: text.length }], steps)).toEqual([{ from: "a", to: "b", words: "items[0].name → title, …" }]);
    const flow = `- { id: b, parameters: { path: a.md, text: "{{ a.text }}" } }`;
    expect(edgeLabels(flow, [{ step: "b", start: 0, end: flow.length }], steps)).toEqual([{ from: "a", to: "b", words: "text → text" }]);
  });
});
