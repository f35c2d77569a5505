import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Command } from "cmdk";
import { useDeferredValue, useState, type ReactNode } from "react";
import { api, unwrap } from "@/api/client";
import { compositionsQuery, toolsQuery } from "@/api/queries";
import { clock, shortId } from "@/lib/format";
import { Dialog } from "@/parts/Dialog";
import { Icon } from "@/parts/Icon";
import { EffectMark } from "@/parts/Marks";
import { SafeText } from "@/parts/SafeText";
import { State } from "@/parts/State";
import { useRegisteredCommands } from "./commands";
import { nextTheme, setTheme, useTheme } from "./theme";
import type { Impact } from "@/api/types";

const MOST = 5;

/** Ctrl K: what this screen can do, then screens, compositions, runs and tools. `>` leaves only commands. */
export default function Palette({ onClose, onSheet }: { onClose: () => void; onSheet: () => void }) {
  const [text, setText] = useState("");
  const commandsOnly = text.startsWith(">");
  const words = (commandsOnly ? text.slice(1) : text).trim();
  const go = (run: () => void) => {
    onClose();
    run();
  };
  return (
    <Dialog title="Search and commands" open onClose={onClose} bare>
      <Command shouldFilter={false} label="Search and commands" loop>
        <div className="pal-in">
          <Icon name="i-search" />
          <Command.Input value={text} onValueChange={setText} placeholder="Screens, runs, compositions, tools, commands" data-autofocus />
        </div>
        <Command.List className="pal-list" label="Results">
          <Command.Empty className="empty">Nothing has this name</Command.Empty>
          <Commands words={words} go={go} onSheet={onSheet} />
          {!commandsOnly && <Found words={words} go={go} />}
        </Command.List>
      </Command>
      <div className="pal-ft">
        <span><kbd>↑</kbd><kbd>↓</kbd> move</span>
        <span><kbd>Enter</kbd> do</span>
        <span><kbd>&gt;</kbd> commands only</span>
        <span className="grow" />
        <span><kbd>?</kbd> all shortcuts</span>
      </div>
    </Dialog>
  );
}

const matches = (text: string, words: string): boolean => words.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

interface ItemProps {
  id: string;
  icon: string;
  label: ReactNode;
  right?: ReactNode;
  off?: string | false | null;
  onSelect: () => void;
}

function Item({ id, icon, label, right, off, onSelect }: ItemProps) {
  return (
    <Command.Item value={id} className="pal-it" disabled={!!off} onSelect={onSelect}>
      <Icon name={icon} />
      <span className="ell">{label}</span>
      <span className="r">{off || right}</span>
    </Command.Item>
  );
}

type Go = (run: () => void) => void;

function Commands({ words, go, onSheet }: { words: string; go: Go; onSheet: () => void }) {
  const own = useRegisteredCommands().filter((command) => matches(command.label, words));
  const navigate = useNavigate();
  const theme = useTheme();
  const groups = [...new Set(own.map((command) => command.group))];
  const screens = [
    { to: "/", name: "Runs", icon: "i-runs", keys: "G R" },
    { to: "/inbox", name: "Inbox", icon: "i-inbox", keys: "G I" },
    { to: "/compositions", name: "Compositions", icon: "i-comp", keys: "G C" },
    { to: "/edit", name: "New composition", icon: "i-plus", keys: "" },
    { to: "/tools", name: "Tools", icon: "i-tools", keys: "G T" },
    { to: "/templates", name: "Templates", icon: "i-tmpl", keys: "" },
    { to: "/plans", name: "Plan from words", icon: "i-words", keys: "" },
    { to: "/settings", name: "Settings and doctor", icon: "i-gear", keys: "" },
  ] as const;
  const themeLabel = `Theme: ${nextTheme(theme)}`;
  return (
    <>
      {groups.map((group) => (
        <Command.Group key={group} heading={group}>
          {own.filter((command) => command.group === group).slice(0, 8).map((command) => (
            <Item key={command.id} id={command.id} icon={command.icon} label={<SafeText text={command.label} />} off={command.off}
              right={<>{command.hint}{command.keys && <kbd>{command.keys}</kbd>}</>} onSelect={() => go(command.run)} />
          ))}
        </Command.Group>
      ))}
      <Command.Group heading="Go to">
        {screens.filter((screen) => matches(screen.name, words)).map((screen) => (
          <Item key={screen.to} id={`go ${screen.to}`} icon={screen.icon} label={screen.name} right={screen.keys && <kbd>{screen.keys}</kbd>}
            onSelect={() => go(() => void navigate({ to: screen.to }))} />
        ))}
      </Command.Group>
      <Command.Group heading="The page">
        {matches(themeLabel, words) && <Item id="theme" icon="i-theme" label={themeLabel} onSelect={() => setTheme(nextTheme(theme))} />}
        {matches("Keyboard shortcuts", words) && <Item id="sheet" icon="i-list" label="Keyboard shortcuts" right={<kbd>?</kbd>} onSelect={onSheet} />}
      </Command.Group>
    </>
  );
}

function Found({ words, go }: { words: string; go: Go }) {
  const navigate = useNavigate();
  const asked = useDeferredValue(words);
  const compositions = useQuery(compositionsQuery).data?.compositions ?? [];
  const tools = useQuery(toolsQuery).data?.tools ?? [];
  const runs = useQuery({
    queryKey: ["runs-palette", asked],
    queryFn: () => unwrap(api.GET("/api/v1/runs", { params: { query: { limit: MOST, text: asked || undefined } } })),
  });
  return (
    <>
      <Command.Group heading="Compositions">
        {compositions.filter((one) => matches(one.name, words)).slice(0, MOST).map((one) => (
          <Item key={one.name} id={`composition ${one.name}`} icon="i-comp" label={<SafeText text={one.name} />} right={<EffectMark effect={one.effect} />}
            onSelect={() => go(() => void navigate({ to: "/compositions/$name", params: { name: one.name } }))} />
        ))}
      </Command.Group>
      <Command.Group heading="Runs">
        {(runs.data?.runs ?? []).map((run) => (
          <Item key={run.run_id} id={`run ${run.run_id}`} icon="i-runs" label={<><SafeText text={run.name} /> <code className="muted">{shortId(run.run_id)}</code></>}
            right={<><State state={run.status} /> {clock(run.started_at)}</>} onSelect={() => go(() => void navigate({ to: "/runs/$id", params: { id: run.run_id } }))} />
        ))}
      </Command.Group>
      <Command.Group heading="Tools">
        {tools.filter((one) => matches(one.id, words)).slice(0, MOST).map((one) => (
          <Item key={one.id} id={`tool ${one.id}`} icon="i-tools" label={<code><SafeText text={one.id} /></code>} right={<EffectMark effect={one.effect as Impact} />}
            onSelect={() => go(() => void navigate({ to: "/tools", search: { tool: one.id } }))} />
        ))}
      </Command.Group>
      {words && (
        <Item id="words" icon="i-words" label={<>Plan from words: “<SafeText text={words} />”</>} right="nothing runs until you accept"
          onSelect={() => go(() => void navigate({ to: "/plans", search: { q: words } }))} />
      )}
    </>
  );
}
