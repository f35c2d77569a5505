import { useCallback, useId, useMemo, useState } from "react";
import { expression, valuePath } from "@/lib/expression";
import type { Key } from "@/lib/json-rows";
import { Icon } from "@/parts/Icon";
import { JsonTree, type LoadMore, type TreeActions } from "@/parts/JsonTree";
import { startDrag, type FieldReference } from "../parameters/reference";
import "./data.css";
import type { Origin, Source } from "./sources";

interface Props {
  sources: readonly Source[];
  /** The field that a value is put into by key, as words, or null when none had the focus yet. */
  target: string | null;
  onUse: (reference: FieldReference) => void;
  /** Loads what the server left out of the value of a step of the run. */
  load?: (path: string | null, keys: Key[], offset: number) => Promise<unknown>;
}

/** What a source's value names, or null for the list of sources itself. */
export function referenceOf(sources: ReadonlyMap<string, Source>, keys: readonly Key[]): FieldReference | null {
  const [name, ...inner] = keys;
  const source = sources.get(String(name));
  return source ? { step: source.step, path: valuePath(inner), expression: expression(source.name, inner) } : null;
}

/** The values that the step can use, as one tree: drag one onto a field, or put it into the field that had the focus. */
export function DataPanel({ sources, target, onUse, load }: Props) {
  const [words, setWords] = useState("");
  const id = useId();
  const shown = useMemo(() => sources.filter((one) => one.name.toLowerCase().includes(words.toLowerCase())), [sources, words]);
  const byName = useMemo(() => new Map(shown.map((one) => [one.name, one])), [shown]);
  const value = useMemo(() => Object.fromEntries(shown.map((one) => [one.name, one.value])), [shown]);
  const actions = useMemo(
    (): TreeActions => ({
      expression: (keys) => referenceOf(byName, keys)?.expression ?? null,
      typed: (keys) => ["schema", "none"].includes(byName.get(String(keys[0]))?.origin ?? ""),
      mark: (keys) => keys.length === 1 && <OriginMark origin={byName.get(String(keys[0]))?.origin ?? "none"} />,
      drag: (data, keys) => {
        const reference = referenceOf(byName, keys);
        if (reference) startDrag(data, reference);
      },
      use: (keys) => {
        const reference = referenceOf(byName, keys);
        if (reference) onUse(reference);
      },
      useLabel: "Insert",
    }),
    [byName, onUse],
  );
  const more = useCallback<LoadMore>((keys, offset) => load?.(byName.get(String(keys[0]))?.path ?? null, keys.slice(1), offset) ?? Promise.resolve(null), [byName, load]);
  return (
    <section className="datapanel" aria-label="Available values" aria-describedby={`${id}-help`}>
      <label className="input">
        <Icon name="i-search" />
        <input aria-label="Search values by step" placeholder={`${sources.length} names`} value={words} spellCheck={false} onChange={(event) => setWords(event.target.value)} />
      </label>
      {shown.length === 0 ? <p className="muted">No name fits.</p> : <JsonTree value={value} name="available" label="Available values" actions={actions} load={load ? more : undefined} openDepth={shown.length > 20 ? 1 : 2} />}
      <p className="help" id={`${id}-help`}>
        Drag a value onto a field. Keys: <kbd>I</kbd> puts it into {target ? <bdi>{target}</bdi> : "the field that had the focus"}, <kbd>C</kbd> copies its expression.
      </p>
    </section>
  );
}

const WORDS: Record<Origin, string> = { pinned: "pinned", run: "last run", schema: "from its schema", none: "no value yet" };

function OriginMark({ origin }: { origin: Origin }) {
  return (
    <span className={`tag o-${origin}`}>
      {origin === "pinned" && <Icon name="i-pin" small />}
      {WORDS[origin]}
    </span>
  );
}
