// What a form starts with: defaults, fixed values, and the frames that required members need.
import { flatten, own, type Schema } from "./schema";
import { shapeOf } from "./shape";

const DEPTH_MOST = 6;

export function initial(schema: Schema, root: Schema, needed = true, depth = 0): unknown {
  const flat = flatten(schema, root);
  if (flat.ok && Object.hasOwn(flat.schema, "default")) return flat.schema.default;
  if (!needed || depth > DEPTH_MOST) return undefined;
  const shape = shapeOf(schema, root);
  switch (shape.kind) {
    case "const":
      return shape.value;
    case "null":
      return null;
    case "enum":
      return shape.options.length === 1 ? shape.options[0]?.value : undefined;
    case "several":
      return [];
    case "object":
      return Object.fromEntries(
        shape.properties
          .map(([name, property]) => [name, initial(property, root, shape.required.includes(name), depth + 1)] as const)
          .filter(([, value]) => value !== undefined),
      );
    case "array": {
      const least = Math.min(shape.least, 20);
      return Array.from({ length: least }, (_, i) => initial(shape.first[i] ?? shape.items ?? true, root, true, depth + 1));
    }
    case "choice": {
      const first = shape.options[0];
      return first && initial(first.schema, root, true, depth + 1);
    }
    default:
      return undefined;
  }
}

/** The value to start with: what the caller has, over the defaults. */
export function startValue(schema: Schema, given: unknown): unknown {
  if (given !== undefined) return given;
  const value = initial(schema, schema);
  return value === undefined && own(schema, "type") === "object" ? {} : value;
}
