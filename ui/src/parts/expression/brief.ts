// A value in a few words: bounded work for a value of any size.
import { bytes, count } from "@/lib/format";
import { isCut } from "@/lib/json-rows";

const DEPTH_MOST = 3;
const ENTRIES_MOST = 12;

export function brief(value: unknown, most = 120): string {
  const text = write(value, most, 0);
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

function write(value: unknown, most: number, depth: number): string {
  if (isCut(value)) {
    const { kind, bytes: size, length } = value.$cut;
    return `${kind} of ${count(length)}${kind === "string" ? " characters" : ""}, ${bytes(size)}`;
  }
  if (typeof value === "string") return value.length > most ? `"${value.slice(0, most)}…` : JSON.stringify(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "";
  if (depth >= DEPTH_MOST) return Array.isArray(value) ? "[…]" : "{…}";
  const inner = (one: unknown) => write(one, Math.max(20, most / 2), depth + 1);
  if (Array.isArray(value)) return `[${value.slice(0, ENTRIES_MOST).map(inner).join(", ")}${value.length > ENTRIES_MOST ? `, … ${count(value.length)} items` : ""}]`;
  const keys = Object.keys(value);
  const shown = keys.slice(0, ENTRIES_MOST).map((key) => `${key.slice(0, most)}: ${inner((value as Record<string, unknown>)[key])}`);
  return `{${shown.join(", ")}${keys.length > ENTRIES_MOST ? `, … ${count(keys.length)} members` : ""}}`;
}
