// What a schema looks like as a field.
import { asText } from "./words";
import { flatten, isObject, isSchema, own, same, typesOf, type Schema, type SchemaObject } from "./schema";

export interface Option {
  value: unknown;
  label: string;
}
export interface Alternative {
  label: string;
  schema: Schema;
}
type Kind =
  | { kind: "string"; format: string | null; long: boolean; secret: boolean }
  | { kind: "number"; integer: boolean }
  | { kind: "boolean" }
  | { kind: "null" }
  | { kind: "const"; value: unknown }
  | { kind: "enum"; options: Option[] }
  | { kind: "several"; options: Option[] }
  | { kind: "object"; properties: [string, Schema][]; required: string[]; more: Schema | null }
  | { kind: "array"; first: Schema[]; items: Schema | null; least: number; most: number }
  | { kind: "choice"; options: Alternative[] }
  | { kind: "raw"; why: string };

export type Shape = Kind & {
  /** null is allowed beside it. */
  nullable: boolean;
  title: string | null;
  description: string | null;
  examples: unknown[];
  /** What holds when nothing is given. */
  preset: { value: unknown } | null;
  type: string;
};

const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const number = (value: unknown, other: number): number => (typeof value === "number" ? value : other);

export function shapeOf(schema: Schema, root: Schema): Shape {
  const flat = flatten(schema, root);
  if (!flat.ok) return dress({ kind: "raw", why: flat.why }, {}, false);
  return ofFlat(flat.schema, root);
}

function ofFlat(flat: SchemaObject, root: Schema): Shape {
  const types = typesOf(flat.type);
  const nullable = types.includes("null");
  if (Object.hasOwn(flat, "const")) return dress({ kind: "const", value: flat.const }, flat, false);
  if (Array.isArray(flat.enum)) return ofEnum(flat, flat.enum);
  for (const word of ["oneOf", "anyOf"] as const) {
    if (Array.isArray(flat[word]) && flat[word].length > 0) return ofAlternatives(flat, word, root);
  }
  const rest = types.filter((type) => type !== "null");
  if (rest.length > 1) {
    const options = rest.map((type) => ({ label: type, schema: { ...flat, type, title: undefined, description: undefined } }));
    return dress({ kind: "choice", options }, flat, nullable);
  }
  if (types.length === 1 && nullable) return dress({ kind: "null" }, flat, false);
  return dress(ofType(rest[0] ?? inferred(flat), flat, root), flat, nullable);
}

function ofEnum(flat: SchemaObject, values: unknown[]): Shape {
  const names = list(flat.enumNames);
  const options = values.map((value, i) => ({ value, label: text(names[i]) ?? asText(value) })).filter((option) => option.value !== null);
  const nullable = options.length < values.length;
  return dress(options.length === 0 ? { kind: "null" } : { kind: "enum", options }, flat, nullable && options.length > 0);
}

/** `anyOf: [{required: [a]}, {required: [b]}]` asks for members: the fields themselves stay the same. */
const onlyAsks = (schema: unknown): boolean => isObject(schema) && Object.keys(schema).every((key) => ["required", "not", "title", "description", "dependentRequired"].includes(key));

function ofAlternatives(flat: SchemaObject, word: "oneOf" | "anyOf", root: Schema): Shape {
  const { [word]: given, ...base } = flat;
  const all = list(given).filter(isSchema);
  if (all.every(onlyAsks)) return ofFlat(base, root);
  const isNull = (schema: Schema) => {
    const one = flatten(schema, root);
    return one.ok && (one.schema.type === "null" || (Object.hasOwn(one.schema, "const") && one.schema.const === null));
  };
  const kept = all.filter((schema) => !isNull(schema));
  const nullable = kept.length < all.length;
  const consts = kept.map((schema) => constOf(schema, root));
  if (kept.length > 0 && consts.every((one) => one !== null)) return dress({ kind: "enum", options: consts as Option[] }, flat, nullable);
  // Members beside the choice belong to each alternative.
  const { title, description, default: preset, examples, ...facts } = base;
  const shared = Object.keys(facts).some((key) => !key.startsWith("$") && key !== "definitions" && key !== "discriminator");
  const whole = (schema: Schema): Schema => (shared ? { allOf: [facts, schema] } : schema);
  const [only] = kept;
  if (kept.length === 1 && only !== undefined) {
    const shape = shapeOf(whole(only), root);
    const type = nullable && !shape.nullable ? `${shape.type} or null` : shape.type;
    return { ...shape, type, nullable: shape.nullable || nullable, title: text(title) ?? shape.title, description: text(description) ?? shape.description };
  }
  const options = kept.map((schema, i) => ({ label: alternativeLabel(schema, root, i), schema: whole(schema) }));
  return dress({ kind: "choice", options }, { title, description, default: preset, examples }, nullable);
}

function constOf(schema: Schema, root: Schema): Option | null {
  const flat = flatten(schema, root);
  if (!flat.ok || !Object.hasOwn(flat.schema, "const")) return null;
  return { value: flat.schema.const, label: text(flat.schema.title) ?? asText(flat.schema.const) };
}

function alternativeLabel(schema: Schema, root: Schema, index: number): string {
  const flat = flatten(schema, root);
  if (!flat.ok) return `Option ${index + 1}`;
  const title = text(flat.schema.title);
  if (title) return title;
  for (const [name, property] of Object.entries(isObject(flat.schema.properties) ? flat.schema.properties : {})) {
    const fixed = isSchema(property) && constOf(property, root);
    if (fixed) return `${name}: ${asText(fixed.value)}`;
  }
  const values = list(flat.schema.enum);
  if (values.length > 0 && values.length <= 3) return values.map(asText).join(" or ");
  const ref = text(own(schema, "$ref"));
  if (ref) return ref.slice(ref.lastIndexOf("/") + 1);
  return typesOf(flat.schema.type).join(" or ") || `Option ${index + 1}`;
}

function inferred(flat: SchemaObject): string {
  const has = (...keys: string[]) => keys.some((key) => Object.hasOwn(flat, key));
  if (has("properties", "additionalProperties", "patternProperties", "required", "propertyNames", "minProperties")) return "object";
  if (has("items", "prefixItems", "minItems", "uniqueItems", "contains")) return "array";
  if (has("minLength", "maxLength", "pattern", "format", "contentEncoding")) return "string";
  if (has("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum")) return "number";
  return "";
}

function ofType(type: string, flat: SchemaObject, root: Schema): Kind {
  switch (type) {
    case "string":
      return { kind: "string", format: text(flat.format), long: number(flat.maxLength, 0) > 200 || text(flat.contentMediaType) !== null, secret: flat.format === "password" || flat.writeOnly === true };
    case "integer":
    case "number":
      return { kind: "number", integer: type === "integer" };
    case "boolean":
      return { kind: "boolean" };
    case "null":
      return { kind: "null" };
    case "array":
      return ofArray(flat, root);
    case "object":
      return ofObject(flat);
    default:
      return { kind: "raw", why: type === "" ? "any JSON value is allowed" : `its schema has the type “${type}”` };
  }
}

function ofArray(flat: SchemaObject, root: Schema): Kind {
  // Before 2020-12 a tuple was an array of schemas in `items`.
  const first = (Array.isArray(flat.items) ? flat.items : list(flat.prefixItems)).filter(isSchema);
  const after = Array.isArray(flat.items) ? flat.additionalItems : flat.items;
  const items = after === false ? null : isSchema(after) ? after : first.length > 0 && after === undefined && number(flat.maxItems, Infinity) <= first.length ? null : true;
  if (first.length === 0 && flat.uniqueItems === true && items !== null) {
    const inner = shapeOf(items, root);
    if (inner.kind === "enum" && !inner.nullable) return { kind: "several", options: inner.options };
  }
  return { kind: "array", first, items, least: number(flat.minItems, 0), most: number(flat.maxItems, Infinity) };
}

function ofObject(flat: SchemaObject): Kind {
  const properties = Object.entries(isObject(flat.properties) ? flat.properties : {}).filter((one): one is [string, Schema] => isSchema(one[1]));
  const required = list(flat.required).filter((one) => typeof one === "string");
  for (const name of required) if (!properties.some(([known]) => known === name)) properties.push([name, true]);
  const patterns = Object.values(isObject(flat.patternProperties) ? flat.patternProperties : {}).filter(isSchema);
  const given = flat.additionalProperties;
  let more: Schema | null = isSchema(given) && given !== false ? given : null;
  if (more === null || more === true) more = patterns.length === 1 ? (patterns[0] ?? true) : patterns.length > 1 ? true : more;
  if (more === null && given === undefined && properties.length === 0) more = true;
  return { kind: "object", properties, required, more };
}

function dress(kind: Kind, flat: SchemaObject, nullable: boolean): Shape {
  const examples = [...list(flat.examples), ...(Object.hasOwn(flat, "example") ? [flat.example] : [])];
  const preset = flat.default === undefined ? null : { value: flat.default };
  return { ...kind, nullable, preset, title: text(flat.title), description: text(flat.description), examples, type: typeWord(kind) + (nullable ? " or null" : "") };
}

function typeWord(kind: Kind): string {
  switch (kind.kind) {
    case "string":
      return kind.format ? `string, ${kind.format}` : "string";
    case "number":
      return kind.integer ? "integer" : "number";
    case "enum":
      return `one of ${kind.options.length}`;
    case "several":
      return `some of ${kind.options.length}`;
    case "choice":
      return "choice";
    case "raw":
      return "JSON";
    case "const":
      return "fixed";
    default:
      return kind.kind;
  }
}

/** The alternative that a value belongs to: it fits, or has the same fixed members. */
export function alternativeOf(options: Alternative[], value: unknown, root: Schema, fits: (schema: Schema) => boolean): number {
  const fitting = options.findIndex((option) => fits(option.schema));
  if (fitting >= 0 || !isObject(value)) return Math.max(0, fitting);
  const marked = options.findIndex((option) => {
    const flat = flatten(option.schema, root);
    const properties = flat.ok && isObject(flat.schema.properties) ? Object.entries(flat.schema.properties) : [];
    return properties.some(([name, schema]) => {
      const fixed = isSchema(schema) ? constOf(schema, root) : null;
      return fixed !== null && same(own(value, name), fixed.value);
    });
  });
  return Math.max(0, marked);
}
