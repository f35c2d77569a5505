import { describe, expect, it } from "vitest";
import * as some from "./fixtures";
import { initial } from "./initial";
import { flatten, lookup, own, type Schema } from "./schema";
import { shapeOf, type Shape } from "./shape";
import { getAt, issuesOf, pick, removeItem, setAt, setRaw, setText, setValue, start, type FormState } from "./state";
import { fits, matches, validate } from "./validate";
import { parseNumber } from "./words";

const objectOf = (schema: Schema, root = schema) => {
  const shape = shapeOf(schema, root);
  if (shape.kind !== "object") throw new Error(`an object is expected, not ${shape.kind}`);
  return { ...shape, of: (name: string): Shape => shapeOf(shape.properties.find(([known]) => known === name)?.[1] ?? false, root) };
};
const kinds = (schema: Schema): string[] => objectOf(schema).properties.map(([name, one]) => `${name}: ${shapeOf(one, schema).type}`);
const messages = (schema: Schema, value: unknown): string[] => validate(schema, value).map(({ at, message }) => `${at} ${message}`);

describe("shapes of schemas", () => {
  it("draws every form of a question", () => {
    expect(kinds(some.elicitation)).toEqual([
      "name: string", "check: boolean", "color: string", "email: string, email", "home: string, uri", "born: string, date", "age: integer", "weight: number",
      "plainOne: one of 2", "titledOne: one of 2", "oldTitles: one of 2", "several: some of 3", "severalTitled: some of 2",
    ]);
    const titled = objectOf(some.elicitation).of("titledOne");
    expect(titled.kind === "enum" && titled.options).toEqual([{ value: "hero-1", label: "Superman" }, { value: "hero-2", label: "Green Lantern" }]);
    const old = objectOf(some.elicitation).of("oldTitles");
    expect(old.kind === "enum" && old.options[1]).toEqual({ value: "pet-2", label: "Dogs" });
  });

  it("follows references, also with odd names, and takes null out of a choice", () => {
    expect(kinds(some.generated)).toEqual(["place: object", "unit: one of 2 or null", "days: integer or null", "tags: array or null", "odd: integer", "extra: object", "anything: JSON"]);
    expect(objectOf(some.generated).of("place")).toMatchObject({ title: "Place", description: "Where it is asked for", required: ["city"] });
  });

  it("draws a tuple with as many items as it has", () => {
    const root = some.generated;
    const point = shapeOf({ $ref: "#/$defs/Point" }, root);
    expect(point).toMatchObject({ kind: "array", items: null, least: 2 });
    expect(shapeOf({ type: "array", items: [{ type: "string" }], additionalItems: { type: "integer" } }, true)).toMatchObject({ kind: "array", first: [{ type: "string" }], items: { type: "integer" } });
  });

  it("names the alternatives of a choice, and merges what stands beside", () => {
    const root = objectOf(some.shapes);
    const choice = root.of("shape");
    expect(choice.kind === "choice" && choice.options.map((option) => option.label)).toEqual(["kind: circle", "kind: box", "By name"]);
    expect(root.properties.map(([name]) => name)).toContain("owner");
    expect(root.required).toEqual(["owner", "shape"]);
    expect(root.of("when")).toMatchObject({ kind: "choice", nullable: true });
    const shared = shapeOf({ type: "object", properties: { a: { type: "string" } }, oneOf: [{ title: "B", properties: { b: { type: "string" } } }, { title: "C", properties: { c: { type: "string" } } }] }, true);
    expect(shared.kind === "choice" && objectOf(shared.options[1]?.schema ?? false, true).properties.map(([name]) => name)).toEqual(["a", "c"]);
  });

  it("does not turn `anyOf` of `required` into a choice", () => {
    expect(shapeOf({ type: "object", properties: { a: {}, b: {} }, anyOf: [{ required: ["a"] }, { required: ["b"] }] }, true).kind).toBe("object");
  });

  it("ends for schemas that refer to themselves or elsewhere", () => {
    expect(objectOf(some.recursive).properties).toHaveLength(4);
    expect(shapeOf(some.loop, some.loop)).toMatchObject({ kind: "raw", why: "its schema refers to itself and to nothing else" });
    expect(shapeOf(some.elsewhere, some.elsewhere)).toMatchObject({ kind: "raw" });
    expect(shapeOf(false, true)).toMatchObject({ kind: "raw", why: "its schema allows no value" });
  });

  it("finds anchors and ids, and only own members", () => {
    const root: Schema = { $id: "urn:all", $defs: { a: { $anchor: "here", type: "integer" }, b: { $id: "urn:b", $defs: { c: { type: "boolean" } } } } };
    expect(lookup(root, "#here")).toMatchObject({ type: "integer" });
    expect(lookup(root, "urn:all#/$defs/a")).toMatchObject({ type: "integer" });
    expect(lookup(root, "urn:b#/$defs/c")).toEqual({ type: "boolean" });
    expect(lookup(root, "#/constructor")).toBeNull();
    expect(lookup(root, "#/%E0%A4%A")).toBeNull();
  });

  it("keeps both limits of `allOf`", () => {
    const flat = flatten({ allOf: [{ type: "number", minimum: 1, maximum: 9 }, { type: "integer", minimum: 3 }], maximum: 20 }, true);
    expect(flat.ok && flat.schema).toEqual({ type: "integer", minimum: 3, maximum: 9 });
  });

  it("treats names of JavaScript's own members as names", () => {
    const shape = objectOf(some.hostile);
    expect(shape.properties.map(([name]) => name)).toEqual(["__proto__", "constructor", "a\u202Eb", "toString", "hasOwnProperty"]);
    const state = setValue(start(some.hostile), ["__proto__"], "x");
    expect(own(state.value, "__proto__")).toBe("x");
    expect(JSON.stringify(state.value)).toBe('{"__proto__":"x"}');
    expect(({} as { x?: unknown }).x).toBeUndefined();
  });
});

describe("what a form starts with", () => {
  it("has the defaults and the fixed values", () => {
    expect(initial(some.withDefaults, some.withDefaults)).toEqual({ duration: 10, steps: 5, includeImage: false });
    expect(initial(some.generated, some.generated)).toEqual({ place: {}, unit: null, days: null });
    expect(initial(some.shapes, some.shapes)).toEqual({ shape: { kind: "circle" } });
    expect(initial(some.noArguments, some.noArguments)).toEqual({});
  });
  it("ends although a required member needs itself", () => {
    expect(JSON.stringify(initial(some.endless, some.endless)).length).toBeLessThan(200);
  });
});

describe("validation", () => {
  it("says what is missing and wrong, at its place", () => {
    expect(messages(some.plainTool, { a: "1", c: 2 })).toEqual(["/b is required", "/a must be number", "/c is not allowed"]);
    expect(messages(some.generated, { place: { city: "Bern", point: [1] }, days: 0 })).toEqual(["/place/point needs at least 2 items", "/days must be at least 1"]);
    expect(messages(some.elicitation, { name: "A", email: "no", home: "nothing", born: "1990-02-30", age: 1.5, several: ["piano", "piano"] })).toEqual([
      "/email must be an e-mail address", "/home must be an address with its scheme such as https://example.org/", "/born must be a date such as 2026-01-31", "/age must be integer", "/several has the same item twice",
    ]);
  });
  it("speaks of the alternative that is nearly met", () => {
    expect(messages(some.shapes, { owner: "a", shape: { kind: "box", w: 1 } })).toEqual(["/shape/h is required"]);
    expect(messages(some.shapes, { owner: "a", shape: 7 })).toEqual(["/shape fits none of the alternatives"]);
    expect(messages({ oneOf: [{ type: "number" }, { type: "integer" }] }, 3)).toEqual([" fits 2 alternatives, and must fit one"]);
  });
  it("knows conditions, dependencies and names", () => {
    const schema: Schema = { if: { properties: { a: { const: 1 } }, required: ["a"] }, then: { required: ["b"] }, dependentRequired: { c: ["d"] }, propertyNames: { maxLength: 2 }, not: { required: ["z"] } };
    expect(messages(schema, { a: 1 })).toEqual(["/b is required"]);
    expect(messages(schema, { a: 2, c: 1 })).toEqual(["/d is required"]);
    expect(messages(schema, { abc: 1 })).toEqual(["/abc its name has 3 characters, 2 are allowed"]);
    expect(messages(schema, { z: 1 })).toEqual([" is excluded by its schema"]);
  });
  it("checks values of schemas that refer to themselves, and ends", () => {
    expect(messages(some.recursive, { op: "and", of: [{ op: "is" }, { op: "no" }] })).toEqual(["/of/1/op must be one of the listed values"]);
    expect(fits(some.loop, {}, some.loop)).toBe(true);
    expect(fits({ anyOf: [{ $ref: "#" }, { $ref: "#" }] }, 1, { anyOf: [{ $ref: "#" }, { $ref: "#" }] })).toBe(true);
  });
  it("leaves patterns that may take for ever to the server", () => {
    expect(matches("^(a+)+$", `${"a".repeat(40)}b`)).toBeNull();
    expect(matches("(", "a")).toBeNull();
    expect(matches("^a+$", "ab")).toBe(false);
  });
  it("reads numbers as JSON does", () => {
    expect(["1e3", "-0.5", "007", "1,5", "Infinity", "0x10"].map((text) => parseNumber(text, false).ok)).toEqual([true, true, false, false, false, false]);
    expect(parseNumber("9007199254740993", true).ok).toBe(false);
  });
});

describe("state of a form", () => {
  it("sets, takes away and creates what is around", () => {
    expect(setAt({ a: 1, b: 2 }, ["a"], undefined)).toEqual({ b: 2 });
    expect(setAt(undefined, ["a", 0, "b"], 1)).toEqual({ a: [{ b: 1 }] });
    expect(Object.keys(setAt({ a: 1, b: 2 }, ["a"], 3) as object)).toEqual(["a", "b"]);
    expect(getAt({ a: [] }, ["a", "length"])).toBeUndefined();
  });
  it("keeps a text that is no number, and says so", () => {
    const state = setText(start(some.plainTool, { a: 1, b: 2 }), ["a"], "1e", "number");
    expect(state.value).toEqual({ b: 2 });
    expect(issuesOf(state, (value) => validate(some.plainTool, value))).toEqual([{ at: "/a", message: "must be a number" }]);
  });
  it("turns a field into JSON and back", () => {
    const raw = setRaw(start(some.plainTool, { a: 1, b: 2 }), ["a"], true);
    expect(raw.texts.get("/a")?.text).toBe("1");
    const typed = setText(raw, ["a"], "[", "json");
    expect(issuesOf(typed, (value) => validate(some.plainTool, value))[0]?.message).toMatch(/^not JSON/);
    expect(setText(typed, ["a"], "7", "json").value).toEqual({ b: 2, a: 7 });
    expect(setRaw(typed, ["a"], false).texts.size).toBe(0);
  });
  it("moves what is on screen with the items after a removed one", () => {
    let state: FormState = start(true, { list: [1, 2, 3] });
    state = setText(state, ["list", 2], "x", "number");
    state = removeItem({ ...state, picks: new Map([["/list/0?", 1], ["/list/2?", 2]]) }, ["list"], 1);
    expect(state.texts.get("/list/1")?.text).toBe("x");
    expect([...state.picks]).toEqual([["/list/0?", 1], ["/list/1?", 2]]);
    expect(state.value).toEqual({ list: [1, undefined] });
  });
  it("forgets inner choices when the outer one changes", () => {
    let state = pick(start(true), ["a"], "/a?", 1, undefined);
    state = pick(state, ["a"], "/a??", 2, undefined);
    expect([...state.picks.keys()]).toEqual(["/a?", "/a??"]);
    state = pick(state, ["a"], "/a?", 0, 5);
    expect([...state.picks]).toEqual([["/a?", 0]]);
  });
});
