// JSON Schema 2020-12, made flat one level at a time: `$ref` and `allOf` are merged when a field is drawn,
// so that a schema which refers to itself costs nothing until somebody opens it.
export type SchemaObject = Record<string, unknown>;
export type Schema = boolean | SchemaObject;
export type Key = string | number;
export type Flat = { ok: true; schema: SchemaObject } | { ok: false; why: string };

const NODES_MOST = 5000;

export const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
export const isSchema = (value: unknown): value is Schema => typeof value === "boolean" || isObject(value);
export const own = (object: unknown, key: string): unknown => (isObject(object) && Object.hasOwn(object, key) ? object[key] : undefined);

/** Equal as JSON values. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((one, i) => same(one, b[i]));
  if (!isObject(a) || !isObject(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
}

/** The subschema that `test` accepts, anywhere inside. */
function search(root: Schema, test: (schema: SchemaObject) => boolean): Schema | null {
  const queue: unknown[] = [root];
  for (let at = 0; at < queue.length && at < NODES_MOST; at++) {
    const one = queue[at];
    if (isObject(one) && test(one)) return one;
    if (typeof one === "object" && one !== null) queue.push(...Object.values(one).slice(0, 500));
  }
  return null;
}

function byPointer(root: Schema, path: string): Schema | null {
  let at: unknown = root;
  for (const part of path.split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    at = Array.isArray(at) ? at[Number(key)] : own(at, key);
  }
  return isSchema(at) ? at : null;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What a `$ref` means inside this document; nothing is ever loaded. */
export function lookup(root: Schema, ref: string): Schema | null {
  const hash = ref.indexOf("#");
  const base = hash < 0 ? ref : ref.slice(0, hash);
  const fragment = hash < 0 ? "" : decode(ref.slice(hash + 1));
  const start = base === "" || base === own(root, "$id") ? root : search(root, (one) => one.$id === base);
  if (start === null) return null;
  if (fragment === "") return start;
  if (fragment.startsWith("/")) return byPointer(start, fragment);
  return search(start, (one) => one.$anchor === fragment || one.$dynamicAnchor === fragment);
}

const both = (a: unknown, b: unknown): Schema => ({ allOf: [a, b].filter(isSchema) });

function mergeNamed(a: unknown, b: unknown): SchemaObject {
  const out: SchemaObject = { ...(isObject(a) ? a : {}) };
  for (const [key, value] of Object.entries(isObject(b) ? b : {})) out[key] = Object.hasOwn(out, key) ? both(out[key], value) : value;
  return out;
}

function mergeTypes(a: unknown, b: unknown): unknown {
  const left = typesOf(a);
  const right = typesOf(b);
  const kept = left.filter((type) => right.includes(type) || (type === "integer" && right.includes("number")));
  if (left.includes("number") && right.includes("integer") && !kept.includes("integer")) kept.push("integer");
  return kept.length === 1 ? kept[0] : kept;
}

export const typesOf = (type: unknown): string[] => (typeof type === "string" ? [type] : Array.isArray(type) ? type.filter((one) => typeof one === "string") : []);

const UPPER = new Set(["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"]);
const LOWER = new Set(["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"]);
const asArray = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

function mergeKey(key: string, a: unknown, b: unknown): unknown {
  if (key === "properties" || key === "patternProperties" || key === "$defs" || key === "definitions") return mergeNamed(a, b);
  if (key === "required") return [...new Set([...asArray(a), ...asArray(b)])];
  if (key === "type") return mergeTypes(a, b);
  if (key === "enum") return asArray(a).filter((one) => asArray(b).some((other) => same(one, other)));
  if (UPPER.has(key)) return Math.max(Number(a), Number(b));
  if (LOWER.has(key)) return Math.min(Number(a), Number(b));
  if (key === "items" || key === "additionalProperties") return a === false || b === false ? false : both(a, b);
  return b;
}

/** `b` says more than `a`: its title, description and default win. */
function merge(a: SchemaObject, b: SchemaObject): Flat {
  const out: SchemaObject = { ...a };
  for (const [key, value] of Object.entries(b)) {
    if ((key === "oneOf" || key === "anyOf") && Object.hasOwn(a, key)) return { ok: false, why: "it combines several choices" };
    out[key] = Object.hasOwn(a, key) ? mergeKey(key, a[key], value) : value;
  }
  return { ok: true, schema: out };
}

/** A schema without `$ref` and `allOf` at its top. */
export function flatten(schema: Schema, root: Schema, seen: readonly Schema[] = []): Flat {
  if (schema === true) return { ok: true, schema: {} };
  if (schema === false) return { ok: false, why: "its schema allows no value" };
  if (seen.includes(schema)) return { ok: false, why: "its schema refers to itself and to nothing else" };
  const inner = [...seen, schema];
  const { $ref, $dynamicRef, allOf, ...rest } = schema;
  let out: Flat = { ok: true, schema: {} };
  const parts: Schema[] = [];
  for (const ref of [$ref, $dynamicRef]) {
    if (typeof ref !== "string") continue;
    const target = lookup(root, ref);
    if (target === null) return { ok: false, why: `its schema refers to ${ref}, which is not part of it` };
    parts.push(target);
  }
  parts.push(...asArray(allOf).filter(isSchema));
  for (const part of parts) {
    const flat = flatten(part, root, inner);
    if (!flat.ok) return flat;
    out = merge(out.ok ? out.schema : {}, flat.schema);
    if (!out.ok) return out;
  }
  return merge(out.schema, rest);
}
