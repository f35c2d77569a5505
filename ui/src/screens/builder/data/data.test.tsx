import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { PlanStepView, RunView, Tool } from "@/api/types";
import { DRAG } from "../model";
import { accessibility, stubMeasuring } from "../testing";
import { DataPanel } from "./DataPanel";
import { skeleton } from "./skeleton";
import { sources, type Known, type Source } from "./sources";

beforeEach(stubMeasuring);
afterEach(cleanup);

const step = (id: string, needs: string[] = [], more: Partial<PlanStepView> = {}): PlanStepView => ({ id, kind: "tool", tool: "a:b", needs, effect: "reads", rollback: { kind: "not_needed" }, confirms: false, ...more });
const steps = [step("pulls"), step("loop", ["pulls"], { kind: "loop", tool: null, bodies: [{ label: "each", steps: [step("read"), step("files", ["read"])] }] }), step("notes", ["loop"]), step("free")];
const ran = (id: string, output: unknown) => ({ id, status: "success", output }) as RunView["steps"][number];
const known = (more: Partial<Known> = {}): Known => ({ steps, inputs: { type: "object", properties: { repo: { type: "string" } } }, run: null, tools: [], pinned: new Map(), items: () => "pull", ...more });
const names = (all: Source[]) => all.map((one) => one.name);

describe("what a step can use", () => {
  it("is the input, and steps that do not wait for it", () => {
    expect(names(sources(known(), "notes"))).toEqual(["input", "pulls", "loop", "free"]);
    expect(names(sources(known(), "pulls"))).toEqual(["input", "free"]);
    expect(names(sources(known(), "free"))).toEqual(["input", "pulls", "loop", "notes"]);
  });
  it("is in a loop also its item, its siblings, and what the loop can use", () => {
    expect(names(sources(known(), "files"))).toEqual(["input", "pull", "pulls", "free", "read"]);
    expect(names(sources(known(), "read"))).toEqual(["input", "pull", "pulls", "free"]);
  });
  it("has the pinned value before that of the run, and the schema after both", () => {
    const tools = [{ id: "a:b", output_schema: { type: "object", properties: { n: { type: "integer" } } } } as unknown as Tool];
    const run = { input: { repo: "acme" }, steps: [ran("pulls", { items: [1] }), ran("free", 1)] };
    const all = sources(known({ tools, run, pinned: new Map([["free", "pin"]]) }), "notes");
    expect(all.map((one) => [one.name, one.origin, one.value])).toEqual([
      ["input", "run", { repo: "acme" }],
      ["pulls", "run", { items: [1] }],
      ["loop", "none", "any"],
      ["free", "pinned", "pin"],
    ]);
    expect(sources(known({ tools }), "notes").find((one) => one.name === "pulls")).toMatchObject({ origin: "schema", value: { n: "integer" } });
  });
});

describe("the members of a schema", () => {
  it("end in circles, in depth, and in number", () => {
    const node = { type: "object", properties: { next: { $ref: "#" }, list: { type: "array", items: { $ref: "#" } } } };
    const from = performance.now();
    expect(JSON.stringify(skeleton(node)).length).toBeLessThan(100_000);
    expect(skeleton({ $ref: "#" })).toBe("JSON");
    expect(Object.keys(skeleton({ type: "object", properties: Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`p${i}`, { type: "string" }])) }) as object)).toHaveLength(10_000);
    expect(performance.now() - from).toBeLessThan(1000);
  });
});

const some: Source[] = [
  { name: "input", step: null, origin: "schema", value: { repo: "string" }, path: null },
  { name: "my-step", step: "my-step", origin: "run", value: { items: [{ title: "<b>t</b>\u202e" }] }, path: "my-step" },
];
const tree = () => screen.getByRole("tree");
const down = (times: number) => Array.from({ length: times }, () => fireEvent.keyDown(tree(), { key: "ArrowDown" }));

describe("the panel of values", () => {
  it("puts a value into the field by key", () => {
    const onUse = vi.fn();
    render(<DataPanel sources={some} target="body" onUse={onUse} />);
    fireEvent.keyDown(tree(), { key: "i" });
    expect(onUse).not.toHaveBeenCalled();
    down(2);
    fireEvent.keyDown(tree(), { key: "i" });
    down(2);
    fireEvent.keyDown(tree(), { key: "ArrowRight" });
    down(1);
    fireEvent.keyDown(tree(), { key: "ArrowRight" });
    down(1);
    fireEvent.keyDown(tree(), { key: "i" });
    expect(onUse.mock.calls.map(([one]) => one)).toEqual([
      { step: null, path: "repo", expression: "{{ input.repo }}" },
      { step: "my-step", path: "items[0].title", expression: "{{ steps['my-step'].output.items[0].title }}" },
    ]);
  });

  it("gives a dragged value with its step and path", () => {
    render(<DataPanel sources={some} target={null} onUse={() => {}} />);
    const data = new Map<string, string>();
    fireEvent.dragStart(screen.getByText("items").closest("[role=treeitem]") as HTMLElement, { dataTransfer: { setData: (type: string, text: string) => data.set(type, text) } });
    expect(JSON.parse(data.get(DRAG.field) ?? "null")).toEqual({ step: "my-step", path: "items", expression: "{{ steps['my-step'].output.items }}" });
  });

  it("marks origins, shows types as words, and finds a step by name", () => {
    render(<DataPanel sources={some} target={null} onUse={() => {}} />);
    expect(tree().textContent).toContain("from its schema");
    expect(tree().textContent).not.toContain('"string"');
    fireEvent.change(screen.getByLabelText("Search values by step"), { target: { value: "MY" } });
    expect(tree().textContent).not.toContain("input");
    fireEvent.change(screen.getByLabelText("Search values by step"), { target: { value: "zzz" } });
    expect(screen.getByText("No name fits.")).toBeTruthy();
  });

  it("draws 1,000 steps and a text of 10 MB as a few rows", () => {
    const many: Source[] = Array.from({ length: 1000 }, (_, i) => ({ name: `s${i}`, step: `s${i}`, origin: "run", value: i === 0 ? "<i>".repeat(3_300_000) : { i }, path: null }));
    const from = performance.now();
    render(<DataPanel sources={many} target={null} onUse={() => {}} />);
    expect(document.querySelectorAll("[role=treeitem]").length).toBeLessThan(80);
    expect(document.querySelector("i")).toBeNull();
    expect(performance.now() - from).toBeLessThan(2000);
  });

  it("has no finding of axe", async () => {
    render(<DataPanel sources={some} target="body" onUse={() => {}} />);
    expect(await accessibility()).toEqual([]);
  });
});
