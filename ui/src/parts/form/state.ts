// The state of a form: a JSON value, and beside it what is only on screen.
import { pointer } from "@/lib/expression";
import { isObject, type Key, type Schema } from "./schema";
import { startValue } from "./initial";
import type { Issue } from "./validate";
import { parseJson, parseNumber, type Parsed } from "./words";

/** How a typed text becomes a value. */
export type TextKind = "json" | "number" | "integer" | "template";

export interface FormState {
  value: unknown;
  /** Texts that are typed: of raw fields, and of numbers that are none yet. */
  texts: ReadonlyMap<string, { text: string; as: TextKind }>;
  /** The alternative that was chosen at a place. */
  picks: ReadonlyMap<string, number>;
  /** Places whose issues are shown. */
  touched: ReadonlySet<string>;
  showAll: boolean;
}

export const start = (schema: Schema, given?: unknown): FormState => ({ value: startValue(schema, given), texts: new Map(), picks: new Map(), touched: new Set(), showAll: false });

export function getAt(value: unknown, keys: readonly Key[]): unknown {
  let at = value;
  for (const key of keys) {
    if (Array.isArray(at)) at = at[Number(key)];
    else at = isObject(at) && Object.hasOwn(at, key) ? at[key as string] : undefined;
  }
  return at;
}

/** The value with another one at a place; `undefined` takes a member away. */
export function setAt(value: unknown, keys: readonly Key[], next: unknown): unknown {
  const [key, ...rest] = keys;
  if (key === undefined) return next;
  if (typeof key === "number") {
    const list = Array.isArray(value) ? [...value] : [];
    list[key] = setAt(list[key], rest, next);
    return list;
  }
  const entries = isObject(value) ? Object.entries(value) : [];
  const had = entries.some(([name]) => name === key);
  const inner = setAt(entries.find(([name]) => name === key)?.[1], rest, next);
  if (inner === undefined) return Object.fromEntries(entries.filter(([name]) => name !== key));
  return Object.fromEntries(had ? entries.map(([name, old]) => [name, name === key ? inner : old]) : [...entries, [key, inner]]);
}

const under = (place: string, at: string): boolean => place === at || place.startsWith(`${at}/`) || place.startsWith(`${at}?`);

function without<T>(map: ReadonlyMap<string, T>, at: string): ReadonlyMap<string, T> {
  return new Map([...map].filter(([place]) => !under(place, at)));
}

export function setValue(state: FormState, keys: readonly Key[], next: unknown): FormState {
  const at = pointer([...keys]);
  return { ...state, value: setAt(state.value, keys, next), texts: without(state.texts, at), touched: new Set(state.touched).add(at) };
}

export function parse(text: string, as: TextKind): Parsed {
  if (as === "template") return { ok: true, value: text === "" ? undefined : text };
  return as === "json" ? parseJson(text) : parseNumber(text, as === "integer");
}

export function setText(state: FormState, keys: readonly Key[], text: string, as: TextKind): FormState {
  const at = pointer([...keys]);
  const parsed = parse(text, as);
  const texts = new Map(without(state.texts, at)).set(at, { text, as });
  return { ...state, texts, value: setAt(state.value, keys, parsed.ok ? parsed.value : undefined), touched: new Set(state.touched).add(at) };
}

/** Shows a field as the text of an expression; a text stays what it is, other values are left behind. */
export function setTemplate(state: FormState, keys: readonly Key[]): FormState {
  const value = getAt(state.value, keys);
  return setText(state, keys, typeof value === "string" ? value : "", "template");
}

/** Shows a field as JSON text, or again as itself. */
export function setRaw(state: FormState, keys: readonly Key[], raw: boolean): FormState {
  const at = pointer([...keys]);
  const texts = new Map(without(state.texts, at));
  const value = getAt(state.value, keys);
  if (raw) texts.set(at, { text: value === undefined ? "" : JSON.stringify(value, null, 2), as: "json" });
  return { ...state, texts };
}

/** `place` is the pointer with a `?` for each choice there: one may stand directly inside another. */
export function pick(state: FormState, keys: readonly Key[], place: string, option: number, value: unknown): FormState {
  const next = setValue(state, keys, value);
  const picks = new Map(without(next.picks, pointer([...keys])));
  for (const [other, chosen] of state.picks) if (other.length < place.length && place.startsWith(other)) picks.set(other, chosen);
  return { ...next, picks: picks.set(place, option) };
}

/** Takes an item away; what is on screen of the items after it moves up with them. */
export function removeItem(state: FormState, keys: readonly Key[], index: number): FormState {
  const list = getAt(state.value, keys);
  if (!Array.isArray(list)) return state;
  const base = pointer([...keys]);
  const move = <T>(map: ReadonlyMap<string, T>): Map<string, T> => {
    const out = new Map<string, T>();
    for (const [place, one] of map) {
      const match = place.startsWith(`${base}/`) ? /^\/(\d+)(.*)$/s.exec(place.slice(base.length)) : null;
      const item = Number(match?.[1] ?? -1);
      if (item === index) continue;
      out.set(item > index ? `${base}/${item - 1}${match?.[2] ?? ""}` : place, one);
    }
    return out;
  };
  const touched = new Set(move(new Map([...state.touched].map((place) => [place, true]))).keys());
  return { ...state, value: setAt(state.value, keys, list.filter((_, i) => i !== index)), texts: move(state.texts), picks: move(state.picks), touched };
}

export function touch(state: FormState, keys: readonly Key[]): FormState {
  const at = pointer([...keys]);
  return state.touched.has(at) ? state : { ...state, touched: new Set(state.touched).add(at) };
}

/** Everything that is wrong: texts that cannot be read, then values that do not fit. */
export function issuesOf(state: FormState, check: (value: unknown) => Issue[]): Issue[] {
  const bad = unread(state);
  const hidden = (issue: Issue) => bad.some(({ at }) => issue.at === at || issue.at.startsWith(`${at}/`));
  return [...bad, ...check(state.value).filter((issue) => !hidden(issue))];
}

/** Texts that cannot be read as what they are meant to be. */
export function unread(state: FormState): Issue[] {
  const out: Issue[] = [];
  for (const [at, { text, as }] of state.texts) {
    const parsed = parse(text, as);
    if (!parsed.ok) out.push({ at, message: parsed.message });
  }
  return out;
}
