import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef, useState, type KeyboardEvent } from "react";
import { serversQuery, toolsQuery } from "@/api/queries";
import { useDenied } from "@/app/session";
import { Icon } from "@/parts/Icon";
import { EffectMark } from "@/parts/Marks";
import { SafeText } from "@/parts/SafeText";
import { StateIcon } from "@/parts/State";
import { VirtualList, type VirtualListHandle } from "@/parts/VirtualList";
import type { Impact } from "@/api/types";
import { SERVER_STATE } from "../tools/List";
import { groups, nameOf, rowsOf, type Row } from "../tools/rows";
import { useBuilder } from "./builder";
import { KINDS, type Kind } from "./kinds";
import { DRAG } from "./model";
import { freeId } from "./steps";
import { useUi } from "./ui";

type Item = Row | { kind: "kind"; key: string; of: Kind };
const ROW = 26;

/** What a tool or a kind is when it becomes a step, without its id. */
export const newStep = (item: { tool: string } | Kind): { wanted: string; step: Record<string, unknown> } => ("tool" in item ? { wanted: nameOf(item.tool), step: { tool: item.tool, parameters: {} } } : { wanted: item.id, step: item.step });

export function useAddStep(): (item: { tool: string } | Kind) => void {
  const builder = useBuilder();
  const { setPlacing } = useUi();
  return (item) => {
    const { wanted, step } = newStep(item);
    const id = freeId(wanted, builder.takenIds());
    setPlacing({ what: wanted, moves: null, edit: (place) => ({ kind: "add_step", step: { id, ...step }, place }) });
  };
}

/** The rows that fit the words, and the row that keys move. */
function useItems(words: string) {
  const tools = useQuery(toolsQuery);
  const servers = useQuery({ ...serversQuery, enabled: !useDenied("admin") });
  const [at, setAt] = useState(0);
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const all = useMemo(() => groups(servers.data?.servers ?? [], tools.data?.tools ?? []).filter((one) => one.tools.length > 0), [servers.data, tools.data]);
  const items = useMemo((): Item[] => {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const kinds = wanted.length === 0 ? [] : KINDS.filter((one) => wanted.every((word) => `${one.kind} ${one.words}`.includes(word)));
    return [...kinds.map((of): Item => ({ kind: "kind", key: `kind ${of.kind}`, of })), ...rowsOf(all, words, (name) => !closed.has(name)).filter((row) => row.kind !== "reason")];
  }, [all, words, closed]);
  const choices = items.flatMap((item, i) => (item.kind === "tool" || item.kind === "kind" ? [i] : []));
  const current = choices.includes(at) ? at : (choices.find((i) => i >= at) ?? choices.at(-1) ?? -1);
  const move = (by: number): number | undefined => {
    const next = choices[Math.max(0, Math.min(choices.length - 1, choices.indexOf(current) + by))];
    if (next !== undefined) setAt(next);
    return next;
  };
  const toggle = (name: string) => setClosed((now) => (now.has(name) ? new Set([...now].filter((one) => one !== name)) : new Set([...now, name])));
  return { items, current, move, begin: () => setAt(0), toggle, error: tools.error, isLoaded: tools.isSuccess };
}

/** Tools by server, and kinds: drag one onto the graph, or search, Enter, and choose the place with the arrow keys. */
export function ToolList() {
  const [words, setWords] = useState("");
  const { items, current, move, begin, toggle, error, isLoaded } = useItems(words);
  const list = useRef<VirtualListHandle>(null);
  const add = useAddStep();
  const choose = (item: Item | undefined) => {
    if (item?.kind === "tool") add({ tool: item.tool.id });
    if (item?.kind === "kind") add(item.of);
    setWords("");
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      const next = move(by);
      if (next !== undefined) list.current?.scrollTo(next);
    } else if (event.key === "Enter") choose(items[current]);
    else if (event.key === "Escape") {
      if (words) setWords("");
      else (event.target as HTMLElement).blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const search = (next: string) => {
    setWords(next);
    begin();
  };
  return (
    <section className="b-tools" aria-label="Add a step" data-pane>
      <div className="b-add">
        <SearchField value={words} current={current} onChange={search} onKeyDown={onKeyDown} />
        <div className="b-kinds">
          {KINDS.map((one) => (
            <KindChip key={one.kind} kind={one} onAdd={() => add(one)} />
          ))}
        </div>
      </div>
      {error && <p className="pad bad">Tools cannot be read: {error.message}</p>}
      {items.length === 0 && isLoaded && <p className="pad muted">No tool or kind fits “<SafeText text={words} most={60} />”.</p>}
      <VirtualList
        ref={list}
        id="b-tool-rows"
        role="listbox"
        aria-label="Tools"
        count={items.length}
        rowHeight={ROW}
        active={current}
        keyOf={(i) => items[i]?.key ?? String(i)}
        onKeyDown={onKeyDown}
        aria-activedescendant={current >= 0 ? `b-tool-${current}` : undefined}
        row={(i) => <ToolRow item={items[i]} index={i} current={i === current} onChoose={choose} onToggle={toggle} />}
      />
    </section>
  );
}

function SearchField({ value, current, onChange, onKeyDown }: { value: string; current: number; onChange: (value: string) => void; onKeyDown: (event: KeyboardEvent) => void }) {
  // On a narrow page the rows are there only while one searches.
  const [focused, setFocused] = useState(false);
  return (
    <label className="input">
      <Icon name="i-search" />
      <input
        role="combobox"
        aria-expanded={focused}
        aria-controls="b-tool-rows"
        aria-activedescendant={focused && current >= 0 ? `b-tool-${current}` : undefined}
        aria-label="Add a step"
        onFocus={() => setFocused(true)}
        onBlur={() => setFocused(false)}
        placeholder="Add a step"
        data-search
        value={value}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <kbd aria-hidden="true">N</kbd>
    </label>
  );
}

/** Not a button element: Firefox does not drag those. */
function KindChip({ kind, onAdd }: { kind: Kind; onAdd: () => void }) {
  return (
    <span
      role="button"
      tabIndex={0}
      className="chip"
      title={`${kind.kind}: ${kind.words}`}
      draggable
      onDragStart={(event) => event.dataTransfer.setData(DRAG.step, JSON.stringify(newStep(kind)))}
      onClick={onAdd}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onAdd();
      }}
    >
      <Icon name={kind.icon} small />
      {kind.kind}
    </span>
  );
}

interface RowProps {
  item: Item | undefined;
  index: number;
  current: boolean;
  onChoose: (item: Item) => void;
  onToggle: (name: string) => void;
}

function ToolRow({ item, index, current, onChoose, onToggle }: RowProps) {
  if (!item || item.kind === "reason") return null;
  if (item.kind === "server") {
    const { name, server, tools } = item.group;
    const state = server && server.state !== "ready" ? SERVER_STATE[server.state] : null;
    return (
      <div aria-hidden="true" className="b-group" onClick={() => onToggle(name)}>
        <Icon name={item.open ? "i-down" : "i-right"} small />
        <b className="ell"><SafeText text={name || "compositions"} most={60} /></b>
        <span className="grow" />
        {state ? <span className="row"><StateIcon state={state.state} />{state.word}</span> : <span className="muted nowrap">{tools.length} tool{tools.length === 1 ? "" : "s"}</span>}
      </div>
    );
  }
  const isDown = item.kind === "tool" && item.group.server?.state === "failed";
  return (
    <div
      id={`b-tool-${index}`}
      role="option"
      aria-selected={current}
      className={`b-tool${current ? " on" : ""}${isDown ? " down" : ""}`}
      draggable
      onDragStart={(event) => {
        event.dataTransfer.setData(DRAG.step, JSON.stringify(newStep(item.kind === "tool" ? { tool: item.tool.id } : item.of)));
        event.dataTransfer.effectAllowed = "copy";
      }}
      onClick={() => onChoose(item)}
      title={item.kind === "tool" ? undefined : item.of.words}
    >
      <Icon name={item.kind === "tool" ? "i-grip" : item.of.icon} small />
      <span className="ell mono">{item.kind === "tool" ? <SafeText text={nameOf(item.tool.id)} most={120} /> : item.of.kind}</span>
      <span className="grow" />
      <span className="sr">{item.kind === "tool" ? <SafeText text={` of ${item.group.name}${isDown ? ", server down" : ""}`} most={80} /> : `, ${item.of.words}`}</span>
      {item.kind === "tool" && <EffectMark effect={item.tool.effect as Impact} short />}
    </div>
  );
}
