// What is wrong with a value. The server checks again; this only says it early and at its place.
import { pointer } from "@/lib/expression";
import { checkFormat } from "./format-check";
import { isObject, isSchema, lookup, own, same, typesOf, type Key, type Schema, type SchemaObject } from "./schema";
import { asText, isTemplate } from "./words";

export interface Issue {
  at: string;
  message: string;
}

/** Schemas are strangers' work: a check stops after this many steps, and the server decides. */
const WORK_MOST = 20_000;
const DEPTH_MOST = 60;

interface Check {
  root: Schema;
  /** A text with an expression counts as fitting: its value is known when it is evaluated. */
  templates: boolean;
  work: number;
  depth: number;
}

export function validate(schema: Schema, value: unknown, root: Schema = schema, templates = false): Issue[] {
  return check({ root, templates, work: 0, depth: 0 }, schema, value, []);
}

export const fits = (schema: Schema, value: unknown, root: Schema, templates = false): boolean => validate(schema, value, root, templates).length === 0;

function check(c: Check, schema: Schema, value: unknown, keys: Key[]): Issue[] {
  if (++c.work > WORK_MOST || c.depth > DEPTH_MOST || schema === true || (c.templates && isTemplate(value))) return [];
  if (schema === false) return [{ at: pointer(keys), message: "is not allowed" }];
  c.depth++;
  const say = (message: string): Issue => ({ at: pointer(keys), message });
  const out: Issue[] = [];
  for (const ref of [schema.$ref, schema.$dynamicRef]) {
    const target = typeof ref === "string" ? lookup(c.root, ref) : null;
    if (target !== null) out.push(...check(c, target, value, keys));
  }
  out.push(...plain(schema, value).map(say));
  if (out.length === 0 && isObject(value)) out.push(...object(c, schema, value, keys));
  if (out.length === 0 && Array.isArray(value)) out.push(...array(c, schema, value, keys));
  out.push(...combined(c, schema, value, keys));
  c.depth--;
  return dedupe(out);
}

function dedupe(issues: Issue[]): Issue[] {
  const seen = new Set<string>();
  return issues.filter(({ at, message }) => {
    const key = `${at}\n${message}`;
    return seen.has(key) ? false : seen.add(key);
  });
}

const TYPES: Record<string, (value: unknown) => boolean> = {
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => typeof value === "number" && Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  array: Array.isArray,
  object: isObject,
};

function plain(schema: SchemaObject, value: unknown): string[] {
  if (value === undefined) return ["is missing"];
  const types = typesOf(schema.type);
  if (types.length > 0 && !types.some((type) => TYPES[type]?.(value) ?? true)) return [`must be ${types.join(" or ")}`];
  if (Object.hasOwn(schema, "const") && !same(schema.const, value)) return [`must be ${asText(schema.const)}`];
  if (Array.isArray(schema.enum) && !schema.enum.some((one) => same(one, value))) return ["must be one of the listed values"];
  if (typeof value === "number") return numeric(schema, value);
  return typeof value === "string" ? textual(schema, value) : [];
}

function numeric(schema: SchemaObject, value: number): string[] {
  const out: string[] = [];
  const limit = (key: string, bad: (limit: number) => boolean, words: string) => {
    const given = schema[key];
    if (typeof given === "number" && bad(given)) out.push(`${words} ${given}`);
  };
  limit("minimum", (least) => value < least, "must be at least");
  limit("maximum", (most) => value > most, "must be at most");
  limit("exclusiveMinimum", (least) => value <= least, "must be more than");
  limit("exclusiveMaximum", (most) => value >= most, "must be less than");
  limit("multipleOf", (step) => step > 0 && Math.abs(value / step - Math.round(value / step)) > 1e-9, "must be a multiple of");
  return out;
}

function textual(schema: SchemaObject, value: string): string[] {
  const out: string[] = [];
  const length = [...value].length;
  if (typeof schema.minLength === "number" && length < schema.minLength) out.push(`needs at least ${schema.minLength} characters`);
  if (typeof schema.maxLength === "number" && length > schema.maxLength) out.push(`has ${length} characters, ${schema.maxLength} are allowed`);
  if (typeof schema.pattern === "string" && matches(schema.pattern, value) === false) out.push(`must match ${schema.pattern}`);
  const wrong = typeof schema.format === "string" ? checkFormat(schema.format, value) : null;
  if (wrong) out.push(wrong);
  return out;
}

/** A repeated group may take for ever: such a pattern is left to the server. */
export function matches(pattern: string, value: string): boolean | null {
  if (pattern.length > 500 || value.length > 5000 || /\)[*+{]/.test(pattern)) return null;
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return null;
  }
}

function object(c: Check, schema: SchemaObject, value: SchemaObject, keys: Key[]): Issue[] {
  const out: Issue[] = [];
  const present = Object.keys(value).filter((key) => value[key] !== undefined);
  const miss = (key: unknown) => {
    if (typeof key === "string" && !present.includes(key)) out.push({ at: pointer([...keys, key]), message: "is required" });
  };
  if (Array.isArray(schema.required)) schema.required.forEach(miss);
  for (const [key, needs] of Object.entries(isObject(schema.dependentRequired) ? schema.dependentRequired : {}))
    if (present.includes(key) && Array.isArray(needs)) needs.forEach(miss);
  for (const [key, needed] of Object.entries(isObject(schema.dependentSchemas) ? schema.dependentSchemas : {}))
    if (present.includes(key) && isSchema(needed)) out.push(...check(c, needed, value, keys));
  const patterns = Object.entries(isObject(schema.patternProperties) ? schema.patternProperties : {});
  for (const key of present) {
    const named = own(schema.properties, key);
    const ruled = patterns.filter(([pattern]) => matches(pattern, key) !== false);
    if (isSchema(named)) out.push(...check(c, named, value[key], [...keys, key]));
    for (const [, rule] of ruled) if (isSchema(rule)) out.push(...check(c, rule, value[key], [...keys, key]));
    if (!isSchema(named) && ruled.length === 0 && isSchema(schema.additionalProperties)) out.push(...check(c, schema.additionalProperties, value[key], [...keys, key]));
    if (isSchema(schema.propertyNames)) out.push(...check(c, schema.propertyNames, key, []).map((issue) => ({ at: pointer([...keys, key]), message: `its name ${issue.message}` })));
  }
  const { minProperties: least, maxProperties: most } = schema;
  if (typeof least === "number" && present.length < least) out.push({ at: pointer(keys), message: `needs at least ${least} members` });
  if (typeof most === "number" && present.length > most) out.push({ at: pointer(keys), message: `may have ${most} members` });
  return out;
}

function array(c: Check, schema: SchemaObject, value: unknown[], keys: Key[]): Issue[] {
  const out: Issue[] = [];
  const say = (message: string) => out.push({ at: pointer(keys), message });
  const tuple = Array.isArray(schema.items) ? schema.items : Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const rest = Array.isArray(schema.items) ? schema.additionalItems : schema.items;
  value.forEach((item, i) => {
    const rule: unknown = i < tuple.length ? tuple[i] : rest;
    if (isSchema(rule)) out.push(...check(c, rule, item, [...keys, i]));
    else if (item === undefined) out.push({ at: pointer([...keys, i]), message: "is missing" });
  });
  if (typeof schema.minItems === "number" && value.length < schema.minItems) say(`needs at least ${schema.minItems} items`);
  if (typeof schema.maxItems === "number" && value.length > schema.maxItems) say(`may have ${schema.maxItems} items`);
  if (schema.uniqueItems === true && value.length < 1000 && value.some((item, i) => value.slice(0, i).some((other) => same(item, other)))) say("has the same item twice");
  const { contains } = schema;
  if (isSchema(contains) && schema.minContains !== 0 && !value.some((item) => check(c, contains, item, []).length === 0)) say("lacks an item that it must contain");
  return out;
}

function combined(c: Check, schema: SchemaObject, value: unknown, keys: Key[]): Issue[] {
  if (value === undefined) return [];
  const at = pointer(keys);
  const out: Issue[] = [];
  const results = (given: unknown) => (Array.isArray(given) ? given.filter(isSchema).map((one) => check(c, one, value, keys)) : []);
  out.push(...results(schema.allOf).flat());
  for (const word of ["anyOf", "oneOf"] as const) {
    const all = results(schema[word]);
    const fitting = all.filter((issues) => issues.length === 0).length;
    if (all.length > 0 && fitting === 0) out.push(...closest(all, at));
    else if (word === "oneOf" && fitting > 1) out.push({ at, message: `fits ${fitting} alternatives, and must fit one` });
  }
  if (isSchema(schema.not) && schema.not !== false && check(c, schema.not, value, keys).length === 0) out.push({ at, message: "is excluded by its schema" });
  if (isSchema(schema.if)) {
    const branch = check(c, schema.if, value, keys).length === 0 ? schema.then : schema.else;
    if (isSchema(branch)) out.push(...check(c, branch, value, keys));
  }
  return out;
}

const OTHER_TYPE = /^must be (string|number|integer|boolean|null|array|object)( or |$)/;

/** The issues of the alternative that is nearly met: those inside it are more help than "fits none". */
function closest(all: Issue[][], at: string): Issue[] {
  const typed = all.filter((issues) => !issues.some((issue) => issue.at === at && OTHER_TYPE.test(issue.message)));
  if (typed.length === 1 && typed[0]) return typed[0];
  const inside = typed.filter((issues) => issues.every((issue) => issue.at !== at));
  const best = inside.sort((a, b) => a.length - b.length)[0];
  return best ?? (all.length === 1 ? all.flat() : [{ at, message: "fits none of the alternatives" }]);
}
