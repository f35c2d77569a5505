// A value that is put into a field: by drag and drop, or by a key.
import { DRAG, type Edit } from "../model";

/** A field of a value: of a step's output, or with `step: null` of something else, such as the input. */
export interface FieldReference {
  step: string | null;
  /** Inside the step's value: `items[0].title`. */
  path: string;
  /** With its braces. */
  expression: string;
}

/** What was dragged, where it can be read. Any page may drag anything here. */
export function droppedField(json: string): FieldReference | null {
  try {
    const given: unknown = JSON.parse(json);
    if (typeof given !== "object" || given === null) return null;
    const { step, path, expression } = given as Record<string, unknown>;
    if (typeof expression !== "string" || typeof path !== "string" || (typeof step !== "string" && step !== null)) return null;
    return { step, path, expression };
  } catch {
    return null;
  }
}

/** Another step's value is connected, so that the server writes the reference; everything else is written as it is. */
export function fieldEdit(from: FieldReference, to: string, field: string): Edit {
  if (from.step !== null && from.step !== to) return { kind: "connect", from: from.step, to, reference: { path: from.path, field } };
  return { kind: "set_field", step: to, field, value: from.expression };
}

export function startDrag(data: DataTransfer, from: FieldReference): void {
  data.setData(DRAG.field, JSON.stringify(from));
  // An editor takes the text at the place of the drop.
  data.setData("text/plain", from.expression);
  data.effectAllowed = "copyLink";
}
