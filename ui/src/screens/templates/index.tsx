import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import type { TemplateView } from "@/api/types";
import { Screen } from "@/app/Screen";
import { useShortcuts } from "@/app/shortcuts";
import { plural } from "@/lib/format";
import { Command, Empty } from "@/parts/Empty";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import { VirtualList, type VirtualListHandle } from "@/parts/VirtualList";
import { Detail } from "./Detail";
import { templatesQuery, use } from "./queries";
import type { TemplatesSearch } from "./search";
import "@/styles/halves.css";

const ROW = 62;
const TYPING_MS = 200;

function useSetSearch() {
  const navigate = useNavigate({ from: "/templates" });
  return (change: Partial<TemplatesSearch>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true });
}

export default function Templates() {
  const search = useSearch({ from: "/templates" });
  const set = useSetSearch();
  const query = useQuery(templatesQuery(search.q));
  const all = useMemo(() => query.data?.templates ?? [], [query.data]);
  const categories = useMemo(() => [...new Set(all.map((one) => one.metadata.category))].sort(), [all]);
  const shown = useMemo(() => all.filter((one) => !search.category || one.metadata.category === search.category), [all, search.category]);
  const selected = search.id ?? shown[0]?.id;
  return (
    <Screen title="Templates" about={query.data && plural(shown.length, "template")}>
      <div className="bar filters" role="search" aria-label="Filter templates">
        <SearchField value={search.q ?? ""} onChange={(q) => set({ q: q || undefined, id: undefined })} />
        <button type="button" className={search.category ? "chip" : "chip on"} aria-pressed={!search.category} onClick={() => set({ category: undefined })}>All</button>
        {categories.map((category) => {
          const on = search.category === category;
          return (
            <button key={category} type="button" className={on ? "chip on" : "chip"} aria-pressed={on} onClick={() => set({ category: on ? undefined : category, id: undefined })}>
              <SafeText text={category} most={30} />
            </button>
          );
        })}
      </div>
      {query.isPending ? (
        <Skeleton label="Loading templates" />
      ) : query.isError ? (
        <div className="pad"><Failure error={query.error} retry={() => void query.refetch()} /></div>
      ) : shown.length === 0 ? (
        <NoTemplates filtered={!!(search.q || search.category)} onAll={() => set({ q: undefined, category: undefined, id: undefined })} />
      ) : (
        <div className="halves">
          <List templates={shown} selected={selected} onSelect={(id) => set({ id })} />
          {selected && <Detail key={selected} id={selected} pane={search.pane ?? "graph"} onPane={(pane) => set({ pane })} />}
        </div>
      )}
    </Screen>
  );
}

function NoTemplates({ filtered, onAll }: { filtered: boolean; onAll: () => void }) {
  return filtered ? (
    <Empty title="No template fits">
      <button type="button" className="btn" onClick={onAll}>Show all templates</button>
    </Empty>
  ) : (
    <Empty title="No templates">
      <p>A template is a composition with an id, a category and a description. Add a file as one:</p>
      <Command text="segue templates add my-report-v1 compositions/report.yaml" />
    </Empty>
  );
}

interface ListProps {
  templates: TemplateView[];
  selected: string | undefined;
  onSelect: (id: string) => void;
}

function List({ templates, selected, onSelect }: ListProps) {
  const list = useRef<VirtualListHandle>(null);
  const at = templates.findIndex((one) => one.id === selected);
  const go = (by: number) => {
    const next = Math.min(templates.length - 1, Math.max(0, at + by));
    const template = templates[next];
    if (!template) return;
    onSelect(template.id);
    list.current?.scrollTo(next);
  };
  useShortcuts({ j: () => go(1), k: () => go(-1) });
  return (
    <VirtualList
      ref={list}
      className="items"
      role="listbox"
      aria-label="Templates"
      aria-activedescendant={at >= 0 ? `template-${selected}` : undefined}
      count={templates.length}
      rowHeight={ROW}
      keyOf={(i) => templates[i]?.id ?? String(i)}
      onKeyDown={(event) => {
        const by = { ArrowDown: 1, ArrowUp: -1, Home: -templates.length, End: templates.length }[event.key];
        if (by === undefined) return;
        event.preventDefault();
        go(by);
      }}
      row={(i) => {
        const template = templates[i];
        return template && <Row template={template} on={template.id === selected} onSelect={onSelect} />;
      }}
    />
  );
}

function Row({ template, on, onSelect }: { template: TemplateView; on: boolean; onSelect: (id: string) => void }) {
  return (
    <div id={`template-${template.id}`} role="option" aria-selected={on} className={on ? "item sel" : "item"} onClick={() => onSelect(template.id)}>
      <div className="item-h">
        <b className="ell"><SafeText text={template.name} most={80} /></b>
        <span className="muted num nowrap">{use(template.metadata)}</span>
      </div>
      <div className="ell t2"><SafeText text={template.description} most={200} /></div>
      <div className="ell muted mono"><SafeText text={template.id} most={80} /></div>
    </div>
  );
}

function SearchField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
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
      <input data-search value={text} aria-label="Search templates" placeholder="What it should do" onChange={(event) => setText(event.target.value)} />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
