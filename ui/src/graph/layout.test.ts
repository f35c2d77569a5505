import { describe, expect, it } from "vitest";
import type { PlanStepView } from "@/api/types";
import { plans } from "../../dev/mock/plans.mjs";
import { anchored } from "./anchor";
import { countSteps, layout, roundPath, type Layout, type Placed } from "./layout";

const all = plans as Record<string, { steps: PlanStepView[] }>;
const steps = (name: string): PlanStepView[] => all[name]?.steps ?? [];
const open = { collapsed: new Set<string>(), strips: true };
const at = (out: Layout, path: string): Placed => {
  const node = out.nodes.find((one) => one.path === path);
  if (!node) throw new Error(`no ${path}`);
  return node;
};
const inside = (outer: Placed, inner: Placed): boolean =>
  inner.x >= outer.x && inner.y >= outer.y && inner.x + inner.w <= outer.x + outer.w && inner.y + inner.h <= outer.y + outer.h;
const overlap = (a: Placed, b: Placed): boolean => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

describe("layout", () => {
  it("gives the same picture for the same plan", () => {
    expect(layout(steps("release-notes"), open)).toEqual(layout(structuredClone(steps("release-notes")), open));
  });
  it("puts every step below what it needs", () => {
    const out = layout(steps("release-notes"), open);
    for (const edge of out.edges) expect(at(out, edge.from).y + at(out, edge.from).h).toBeLessThan(at(out, edge.to).y);
    expect(out.edges.map((edge) => edge.id)).toContain("notes>release:needs");
  });
  it("tells steps that are only waited for from those that are referred to", () => {
    const step = (id: string, needs: string[], depends_on: string[]) => ({ ...steps("release-notes")[0], id, needs, depends_on, bodies: [], ways: [] }) as PlanStepView;
    const out = layout([step("a", [], []), step("b", [], []), step("c", ["a", "b"], ["b"])], open);
    expect(out.edges.map((edge) => edge.id).sort()).toEqual(["a>c:needs", "b>c:depends"]);
  });
  it("keeps steps inside their container and apart from each other", () => {
    for (const name of ["release-notes", "triage-issue", "crawl-docs"]) {
      const out = layout(steps(name), open);
      for (const node of out.nodes) {
        const parent = out.nodes.find((one) => one.kind === "container" && node.path.startsWith(`${one.path}/`) && node.path.slice(one.path.length + 1).indexOf("/") < 0);
        if (parent) expect(inside(parent, node), `${node.path} in ${parent.path}`).toBe(true);
      }
      const leaves = out.nodes.filter((node) => node.kind === "step");
      for (const a of leaves) for (const b of leaves) if (a !== b) expect(overlap(a, b), `${a.path} and ${b.path}`).toBe(false);
    }
  });
  it("gives each branch its label and its steps", () => {
    const out = layout(steps("release-notes"), open);
    expect(at(out, "layout:0").label).toBe("when summaries | length > 50");
    expect(inside(at(out, "layout:0"), at(out, "layout/split"))).toBe(true);
    expect(inside(at(out, "layout:1"), at(out, "layout/join"))).toBe(true);
  });
  it("draws a collapsed container as one node", () => {
    const out = layout(steps("crawl-docs"), { collapsed: new Set(["sites"]), strips: true });
    expect(out.nodes.map((node) => [node.path, node.kind])).toEqual([["sites", "step"], ["index", "step"]]);
  });
  it("lays out 1,000 steps in reasonable time", () => {
    const began = performance.now();
    const out = layout(steps("thousand-steps"), open);
    const took = performance.now() - began;
    console.log(`1,000 steps: ${Math.round(took)} ms, ${Math.round(out.w)} × ${Math.round(out.h)}`);
    expect(out.nodes).toHaveLength(1000);
    expect(countSteps(steps("thousand-steps"))).toBe(1000);
    expect(took).toBeLessThan(15_000);
  });
});

describe("roundPath", () => {
  it("rounds corners by at most half of the shorter side", () => {
    expect(roundPath([[0, 0], [0, 10], [100, 10], [100, 50]])).toBe("M0 0L0 5Q0 10 5 10L92 10Q100 10 100 18L100 50");
  });
});

describe("a new layout", () => {
  const box = { width: 800, height: 600 };
  const step = (id: string, needs: string[] = []) => ({ ...steps("release-notes")[0], id, needs, depends_on: [], bodies: [], ways: [] }) as PlanStepView;
  const one = layout([step("a"), step("b", ["a"])], open);
  it("leaves what is in view where it is", () => {
    const two = layout([step("x"), step("y"), step("a"), step("b", ["a"])], open);
    const next = anchored(one, two, "b", { x: 10, y: 20, zoom: 0.5 }, box);
    expect((next?.x ?? 0) + at(two, "b").x * 0.5).toBe(10 + at(one, "b").x * 0.5);
    expect((next?.y ?? 0) + at(two, "b").y * 0.5).toBe(20 + at(one, "b").y * 0.5);
  });
  it("is shown whole when nothing of it would be in view", () => {
    expect(anchored(one, layout([step("z")], open), null, { x: -5000, y: 0, zoom: 1 }, box)).toBeNull();
    expect(anchored(one, layout([step("z")], open), null, { x: 0, y: 0, zoom: 1 }, box)).toEqual({ x: 0, y: 0, zoom: 1 });
  });
});
