// A value that has the members of a schema, with words for types where values will be. Bounded: a schema may refer to
// itself, and a stranger may have written it.
import { isSchema, type Schema } from "@/parts/form/schema";
import { shapeOf } from "@/parts/form/shape";

const DEPTH_MOST = 5;
const NODES_MOST = 2000;

export function skeleton(given: unknown): unknown {
  return isSchema(given) ? draw({ root: given, nodes: 0 }, given, 0) : null;
}

function draw(work: { root: Schema; nodes: number }, schema: Schema, depth: number): unknown {
  if (++work.nodes > NODES_MOST) return "…";
  const shape = shapeOf(schema, work.root);
  if (shape.kind === "object" && shape.properties.length > 0 && depth < DEPTH_MOST) return Object.fromEntries(shape.properties.map(([name, one]) => [name, draw(work, one, depth + 1)]));
  if (shape.kind === "array" && depth < DEPTH_MOST) {
    const items = shape.first.length > 0 ? shape.first : shape.items ? [shape.items] : [];
    return items.map((one) => draw(work, one, depth + 1));
  }
  return shape.type;
}
