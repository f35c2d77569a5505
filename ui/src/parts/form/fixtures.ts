// Schemas as servers really send them, for tests. Written after the shapes of MCP's reference server, of
// generators that emit `$ref` and `anyOf` for everything, and of people who mean harm.
import type { Schema } from "./schema";

export const plainTool: Schema = { type: "object", properties: { a: { type: "number", description: "First number" }, b: { type: "number" } }, required: ["a", "b"], additionalProperties: false, $schema: "http://json-schema.org/draft-07/schema#" };
export const noArguments: Schema = { type: "object", properties: {}, additionalProperties: false };
export const withDefaults: Schema = { type: "object", properties: { duration: { type: "number", default: 10 }, steps: { type: "number", default: 5 }, includeImage: { type: "boolean", default: false }, messageType: { type: "string", enum: ["error", "success", "debug"] } }, required: ["messageType"] };

/** Every form that a question of an MCP server may have. */
export const elicitation: Schema = {
  type: "object",
  properties: {
    name: { type: "string", title: "Full name", description: "First and last" },
    check: { type: "boolean", title: "Agree" },
    color: { type: "string", minLength: 3, pattern: "^#[0-9a-f]{3,6}$" },
    email: { type: "string", format: "email" },
    home: { type: "string", format: "uri" },
    born: { type: "string", format: "date", default: "1990-01-31" },
    age: { type: "integer", minimum: 1, maximum: 150, default: 42 },
    weight: { type: "number", default: 3.14 },
    plainOne: { type: "string", enum: ["red", "green"] },
    titledOne: { type: "string", oneOf: [{ const: "hero-1", title: "Superman" }, { const: "hero-2", title: "Green Lantern" }], default: "hero-1" },
    oldTitles: { type: "string", enum: ["pet-1", "pet-2"], enumNames: ["Cats", "Dogs"] },
    several: { type: "array", uniqueItems: true, minItems: 1, maxItems: 2, items: { type: "string", enum: ["guitar", "piano", "drums"] } },
    severalTitled: { type: "array", uniqueItems: true, items: { anyOf: [{ const: "fish-1", title: "Tuna" }, { const: "fish-2", title: "Salmon" }] } },
  },
  required: ["name"],
};

/** A generator's: everything behind `$ref`, optional members as `anyOf` with null. */
export const generated: Schema = {
  $defs: {
    Place: { type: "object", title: "Place", properties: { city: { type: "string" }, point: { $ref: "#/$defs/Point" } }, required: ["city"] },
    Point: { type: "array", prefixItems: [{ type: "number" }, { type: "number" }], items: false, minItems: 2 },
    Unit: { type: "string", enum: ["metric", "imperial"] },
    "odd/name~1": { type: "integer" },
  },
  type: "object",
  title: "ForecastArguments",
  properties: {
    place: { $ref: "#/$defs/Place", description: "Where it is asked for" },
    unit: { anyOf: [{ $ref: "#/$defs/Unit" }, { type: "null" }], default: null },
    days: { anyOf: [{ type: "integer", minimum: 1 }, { type: "null" }], default: null },
    tags: { anyOf: [{ type: "array", items: { type: "string" } }, { type: "null" }] },
    odd: { $ref: "#/$defs/odd~1name~01" },
    extra: { type: "object", additionalProperties: { type: "string" } },
    anything: {},
  },
  required: ["place"],
};

/** A choice with a discriminator, and shared members beside it. */
export const shapes: Schema = {
  type: "object",
  properties: {
    id: { type: "string" },
    shape: {
      oneOf: [
        { type: "object", properties: { kind: { const: "circle" }, radius: { type: "number", exclusiveMinimum: 0 } }, required: ["kind", "radius"] },
        { type: "object", properties: { kind: { const: "box" }, w: { type: "number" }, h: { type: "number" } }, required: ["kind", "w", "h"] },
        { type: "string", title: "By name" },
      ],
    },
    when: { type: ["string", "integer", "null"] },
  },
  required: ["shape"],
  allOf: [{ properties: { owner: { type: "string" } }, required: ["owner"] }],
};

/** A tree, an expression: they refer to themselves. */
export const recursive: Schema = {
  $ref: "#/$defs/Filter",
  $defs: {
    Filter: {
      type: "object",
      properties: { op: { enum: ["and", "or", "is"] }, of: { type: "array", items: { $ref: "#/$defs/Filter" } }, not: { $ref: "#/$defs/Filter" }, value: { type: "string" } },
      required: ["op"],
    },
  },
};
/** A required member that needs itself for ever. */
export const endless: Schema = { type: "object", properties: { next: { $ref: "#" } }, required: ["next"] };
export const loop: Schema = { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } };
export const elsewhere: Schema = { $ref: "https://example.org/schema.json" };

export const hostile: Schema = {
  type: "object",
  properties: { ["__proto__"]: { type: "string" }, constructor: { type: "string", description: "<img src=x onerror=alert(1)>" }, "a\u202Eb": { type: "string", pattern: "^(a+)+$" }, toString: { type: "integer" } },
  required: ["hasOwnProperty"],
};
