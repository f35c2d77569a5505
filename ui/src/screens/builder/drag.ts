// What is dropped on the graph. It may come from this page or from any other one: its shape is checked.
import { DRAG, type Edit } from "./model";
import type { NamedPlace } from "./places";
import { freeId } from "./steps";

export interface Dragged {
  what: string;
  edit: (place: NamedPlace) => Edit;
}

/** The edit that a drop means, or null. */
export function readDrag(type: string, text: string, taken: ReadonlySet<string>): Dragged | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  if (type === DRAG.node && "id" in value && typeof value.id === "string") {
    const { id } = value;
    return { what: id, edit: ({ place }) => ({ kind: "move_step", step: id, place }) };
  }
  if (type === DRAG.step && "wanted" in value && typeof value.wanted === "string" && "step" in value && typeof value.step === "object" && value.step !== null) {
    const id = freeId(value.wanted, taken);
    const step = { id, ...(value.step as Record<string, unknown>) };
    return { what: id, edit: ({ place }) => ({ kind: "add_step", step, place }) };
  }
  return null;
}
