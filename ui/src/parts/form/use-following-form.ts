// A form over a value that lives elsewhere, in a text: what is typed becomes changes of single places, and what the
// text says meanwhile comes back into the form.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { pointer } from "@/lib/expression";
import { asEdit, changes, type FieldChange } from "./changes";
import { same, type Key, type Schema } from "./schema";
import { shapeOf } from "./shape";
import { getAt, issuesOf, parse, setAt, unread, type FormState } from "./state";
import type { Form, Templates } from "./use-form";
import type { Issue } from "./validate";

export const PAUSE_MS = 250;

interface Options {
  /** What `$ref` refers into. */
  schema: Schema;
  value: unknown;
  check: (value: unknown) => Issue[];
  templates: Templates;
  /** Resolves with why the change was refused, else with null. */
  onChange: (change: FieldChange) => Promise<string | null>;
}

export interface FollowingForm extends Form {
  /** Sends what was typed now, not after a pause. */
  flush: () => void;
  /** Why the last change was refused. */
  refused: string | null;
}

const begin = (value: unknown): FormState => ({ value, texts: new Map(), picks: new Map(), touched: new Set(), showAll: true });

/** Typed texts go on as long as they mean what the text says, or mean nothing yet. */
export function follow(state: FormState, value: unknown): FormState {
  const texts = new Map<string, { text: string; as: "json" | "number" | "integer" | "template" }>();
  for (const [at, typed] of state.texts) {
    const parsed = parse(typed.text, typed.as);
    const now = getAt(value, keysOf(at, value));
    if (!parsed.ok || same(parsed.value, now)) texts.set(at, typed);
    else if (typed.as === "json" && now !== undefined) texts.set(at, { ...typed, text: JSON.stringify(now, null, 2) });
    else if (typed.as === "template" && typeof now === "string") texts.set(at, { ...typed, text: now });
  }
  return { ...state, value, texts };
}

/** The keys of a pointer; a number is an index where the value has a list. */
function keysOf(at: string, value: unknown): Key[] {
  let here = value;
  return at.split("/").slice(1).map((part) => {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    const key = Array.isArray(here) ? Number(name) : name;
    here = getAt(here, [key]);
    return key;
  });
}

export function useFollowingForm({ schema, value, check, templates, onChange }: Options): FollowingForm {
  const [state, setState] = useState<FormState>(() => begin(value));
  const [refused, setRefused] = useState<string | null>(null);
  const latest = useRef(state);
  // What the text has, as far as this form knows.
  const known = useRef(value);
  // What it will have when the changes that were sent come back; and what came back last.
  const expected = useRef<unknown[]>([]);
  const seen = useRef(value);
  const underWay = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const given = useRef({ value, onChange });
  given.current = { value, onChange };

  const show = useCallback((next: FormState) => {
    latest.current = next;
    setState(next);
  }, []);
  const takeOver = useCallback(() => {
    expected.current = [];
    known.current = given.current.value;
    if (!same(latest.current.value, known.current)) show(follow(latest.current, known.current));
  }, [show]);

  const flush = useCallback(() => {
    clearTimeout(timer.current);
    timer.current = undefined;
    const bad = unread(latest.current).map((issue) => issue.at);
    for (const change of changes(known.current, latest.current.value)) {
      const at = pointer(change.keys);
      if (bad.some((place) => place === at || place.startsWith(`${at}/`) || at.startsWith(`${place}/`))) continue;
      known.current = setAt(known.current, change.keys, change.value);
      expected.current.push(known.current);
      underWay.current++;
      void given.current.onChange(asEdit(change)).then((why) => {
        underWay.current--;
        setRefused(why);
        if (why !== null && underWay.current === 0 && timer.current === undefined) takeOver();
      });
    }
  }, [takeOver]);
  const change = useCallback(
    (next: (state: FormState) => FormState) => {
      const now = next(latest.current);
      if (now.value !== latest.current.value) {
        clearTimeout(timer.current);
        timer.current = setTimeout(flush, PAUSE_MS);
      }
      show(now);
    },
    [flush, show],
  );

  // What is typed and not sent, or sent and not answered, is newer than the text; so is what comes back of older changes.
  useEffect(() => {
    if (same(seen.current, value)) return;
    seen.current = value;
    const own = expected.current.findIndex((one) => same(one, value));
    if (own >= 0) expected.current.splice(0, own + 1);
    else if (timer.current === undefined && underWay.current === 0) takeOver();
  }, [value, takeOver]);
  useEffect(() => flush, [flush]);

  const issues = useMemo(() => issuesOf(state, check).filter((issue) => issue.message !== "is required" || state.touched.has(issue.at)), [state, check]);
  const shape = useMemo(() => shapeOf(schema, schema), [schema]);
  return { schema, shape, state, issues, change, submit: () => (issues.length === 0 ? { value: state.value } : null), reset: (next) => show(begin(next)), templates, flush, refused };
}
