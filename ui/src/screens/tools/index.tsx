import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useRef, useState } from "react";
import { serversQuery, toolsQuery } from "@/api/queries";
import { Screen } from "@/app/Screen";
import { useShortcuts } from "@/app/shortcuts";
import { plural } from "@/lib/format";
import { Command, Empty } from "@/parts/Empty";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { Skeleton } from "@/parts/Skeleton";
import type { VirtualListHandle } from "@/parts/VirtualList";
import { List } from "./List";
import { groups, rowsOf, serverOf, type Row, type ServerGroup } from "./rows";
import { ServerPane } from "./ServerPane";
import { ToolPane } from "./ToolPane";
import "./tools.css";

const OPEN_UP_TO = 200;

export default function Tools() {
  const search = useSearch({ from: "/tools" });
  const tools = useQuery(toolsQuery);
  // Somebody who may not see servers still sees tools.
  const servers = useQuery(serversQuery);
  const all = useMemo(() => groups(servers.data?.servers ?? [], tools.data?.tools ?? []), [servers.data, tools.data]);
  const count = tools.data?.tools.length ?? 0;
  const down = all.filter((group) => group.server?.state === "failed").length;
  const tool = tools.data?.tools.find((one) => one.id === search.tool);
  const group = all.find((one) => one.name === search.server);
  return (
    <Screen title="Tools" about={tools.isSuccess ? `${plural(count, "tool")} of ${plural(all.length, "server")}${down > 0 ? `, ${down} down` : ""}` : undefined}>
      {tools.isPending || servers.isPending ? (
        <Skeleton label="Loading tools" />
      ) : tools.isError ? (
        <div className="pad"><Failure error={tools.error} retry={() => void tools.refetch()} /></div>
      ) : all.length === 0 ? (
        <NoTools />
      ) : (
        <div className="tools">
          <Side all={all} total={count} />
          {tool ? (
            <ToolPane key={tool.id} tool={tool} server={all.find((one) => one.name === serverOf(tool.id))?.server ?? null} />
          ) : group ? (
            <ServerPane key={group.name} group={group} />
          ) : search.tool ? (
            <Empty title="There is no such tool"><p>Its server may be down, or it has another name now.</p></Empty>
          ) : (
            <Empty title="Choose a tool"><p>See what it takes, returns and does, how long it takes and how often it fails, and call it.</p></Empty>
          )}
        </div>
      )}
    </Screen>
  );
}

function Side({ all, total }: { all: ServerGroup[]; total: number }) {
  const search = useSearch({ from: "/tools" });
  const navigate = useNavigate({ from: "/tools" });
  const [toggled, setToggled] = useState<ReadonlyMap<string, boolean>>(new Map());
  const list = useRef<VirtualListHandle>(null);
  const chosen = search.tool ? serverOf(search.tool) : null;
  const isOpen = useCallback((name: string) => toggled.get(name) ?? (total <= OPEN_UP_TO || name === chosen), [toggled, total, chosen]);
  const rows = useMemo(() => rowsOf(all, search.q, isOpen), [all, search.q, isOpen]);
  const [at, setAt] = useState<string | null>(search.tool ?? (search.server ? `server ${search.server}` : null));
  const found = rows.findIndex((row) => row.key === at);
  const toggle = (name: string, open: boolean) => setToggled((now) => new Map(now).set(name, open));
  const open = (row: Row) => {
    setAt(row.key);
    if (row.kind === "tool") void navigate({ search: (old) => ({ ...old, tool: row.tool.id, server: undefined }) });
    else void navigate({ search: (old) => ({ ...old, server: row.group.name, tool: undefined }) });
  };
  const go = (to: number) => {
    const next = rows[Math.max(0, Math.min(rows.length - 1, to))];
    if (!next) return;
    setAt(next.key);
    list.current?.scrollTo(rows.indexOf(next));
  };
  useShortcuts({
    j: () => go(found + 1),
    k: () => go(found - 1),
    Enter: (event) => {
      const row = rows[found];
      if (!row || (event.target instanceof HTMLElement && event.target.closest("a, button, [role=tree].tree, summary, .codeview"))) return false;
      open(row);
      return true;
    },
  });
  return (
    <div className="tside">
      <label className="input tsearch">
        <Icon name="i-search" />
        <input data-search aria-label="Search tools" placeholder={`${plural(total, "tool")} of ${plural(all.length, "server")}`} value={search.q ?? ""} onChange={(event) => void navigate({ search: (old) => ({ ...old, q: event.target.value || undefined }), replace: true })} />
        <kbd aria-hidden="true">/</kbd>
      </label>
      <List ref={list} rows={rows} current={found} chosen={search.tool ?? (search.server ? `server ${search.server}` : null)} onOpen={open} onToggle={toggle} onMove={go} />
      {rows.length === 0 && <p className="pad muted">No tool fits.</p>}
    </div>
  );
}

function NoTools() {
  return (
    <Empty title="No tool yet">
      <p>Take over the servers that Claude, Cursor or VS Code already use:</p>
      <Command text="segue import claude" />
      <p className="muted">Or name servers in <code>segue.yaml</code>: Segue sees the change at once.</p>
    </Empty>
  );
}
