// What differs between two JSON values, as changes of single places.
import { pointer } from "@/lib/expression";
import { isObject, same, type Key } from "./schema";

export type FieldChange = { kind: "set_field"; field: string; value: unknown } | { kind: "clear_field"; field: string };

export interface Change {
  keys: Key[];
  /** `undefined` takes the member away. */
  value: unknown;
}

/** The deepest places that differ. A list that became longer or shorter is one change, since its items have no names. */
export function changes(before: unknown, after: unknown, keys: Key[] = []): Change[] {
  if (same(before, after)) return [];
  if (isObject(before) && isObject(after))
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((key) => {
      const here = [...keys, key];
      if (Object.hasOwn(before, key) && Object.hasOwn(after, key)) return changes(before[key], after[key], here);
      return [{ keys: here, value: Object.hasOwn(after, key) ? after[key] : undefined }];
    });
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length) return after.flatMap((item, i) => changes(before[i], item, [...keys, i]));
  return [{ keys, value: after }];
}

export const asEdit = ({ keys, value }: Change): FieldChange =>
  value === undefined ? { kind: "clear_field", field: pointer(keys) } : { kind: "set_field", field: pointer(keys), value };
