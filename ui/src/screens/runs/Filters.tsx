import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { compositionsQuery, toolsQuery } from "@/api/queries";
import { Icon } from "@/parts/Icon";
import { Menu } from "@/parts/Menu";
import { SafeText } from "@/parts/SafeText";
import { stateWord } from "@/parts/State";
import { STATUSES, type RunsSearch, type Span } from "./search";

const SPAN_WORD: Record<Span, string> = { "1h": "Last hour", "24h": "Last 24 h", "7d": "Last 7 days", "30d": "Last 30 days" };
const QUICK = [
  { status: "running", icon: "s-running", word: "Live" },
  { status: "waiting", icon: "s-waiting", word: "Waiting" },
] as const;

export function useSetSearch() {
  const navigate = useNavigate({ from: "/" });
  return (change: Partial<RunsSearch>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true });
}

/** All filters live in the address. */
export function Filters({ search }: { search: RunsSearch }) {
  const set = useSetSearch();
  const none = !search.status && !search.failed && !search.name && !search.tool && !search.span && !search.q;
  const other = search.status && !search.failed && !QUICK.some((one) => one.status === search.status) ? search.status : null;
  return (
    <div className="bar filters" role="search" aria-label="Filter runs">
      <Search value={search.q ?? ""} onChange={(q) => set({ q: q || undefined })} />
      <button type="button" className={none ? "chip on" : "chip"} aria-pressed={none} onClick={() => set({ status: undefined, failed: undefined, name: undefined, tool: undefined, span: undefined, q: undefined })}>
        All
      </button>
      <button type="button" className={`chip${search.failed ? " on" : ""}`} aria-pressed={!!search.failed} onClick={() => set({ failed: search.failed ? undefined : true, status: undefined })}>
        <span className="sti s-failed"><Icon name="s-failed" small /></span>
        Failed only
      </button>
      {QUICK.map(({ status, icon, word }) => {
        const on = search.status === status;
        return (
          <button key={status} type="button" className={`chip${on ? " on" : ""}`} aria-pressed={on} onClick={() => set({ status: on ? undefined : status, failed: undefined })}>
            <span className={`sti s-${status}`}><Icon name={icon} small /></span>
            {word}
          </button>
        );
      })}
      <Choice label="Status" value={other && stateWord(other)} onClear={() => set({ status: undefined })}
        items={STATUSES.map((status) => ({ value: status, label: stateWord(status), on: search.status === status, pick: () => set({ status, failed: undefined }) }))} />
      <Names search={search} />
      <Choice label="Any time" value={search.span && SPAN_WORD[search.span]} onClear={() => set({ span: undefined })}
        items={(Object.keys(SPAN_WORD) as Span[]).map((span) => ({ value: span, label: SPAN_WORD[span], on: search.span === span, pick: () => set({ span }) }))} />
    </div>
  );
}

function Names({ search }: { search: RunsSearch }) {
  const set = useSetSearch();
  const compositions = useQuery(compositionsQuery).data?.compositions ?? [];
  const tools = useQuery(toolsQuery).data?.tools ?? [];
  return (
    <>
      <Choice label="Composition" value={search.name} onClear={() => set({ name: undefined })}
        items={compositions.map(({ name }) => ({ value: name, label: name, on: search.name === name, pick: () => set({ name }) }))} />
      <Choice label="Tool" value={search.tool} onClear={() => set({ tool: undefined })}
        items={tools.map(({ id }) => ({ value: id, label: id, on: search.tool === id, pick: () => set({ tool: id }) }))} />
    </>
  );
}

interface Option {
  value: string;
  label: string;
  on: boolean;
  pick: () => void;
}

function Choice({ label, value, items, onClear }: { label: string; value: string | null | undefined; items: Option[]; onClear: () => void }) {
  const clear = { label: `${label === "Any time" ? "Any time" : `Every ${label.toLowerCase()}`}`, checked: !value, onSelect: onClear };
  return (
    <Menu
      label={label}
      trigger={
        <button type="button" className={value ? "chip on" : "chip"}>
          <span className="ell">{value ? <SafeText text={value} most={30} /> : label}</span>
          <Icon name="i-down" small />
        </button>
      }
      items={[clear, ...items.map((item) => ({ label: <SafeText text={item.label} most={60} />, checked: item.on, onSelect: item.pick }))]}
    />
  );
}

const TYPING_MS = 250;

function Search({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return (
    <div className="input search">
      <Icon name="i-search" />
      <input
        data-search
        value={text}
        aria-label="Search names, tools, ids, text in inputs and outputs"
        placeholder="Names, tools, ids, text in inputs and outputs"
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          setText("");
          event.currentTarget.blur();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
