// Commands that the palette offers while a screen is shown ("This run", …).
import { useEffect, useRef, useSyncExternalStore } from "react";

export interface PaletteCommand {
  id: string;
  group: string;
  label: string;
  icon: string;
  hint?: string;
  keys?: string;
  off?: string | false | null;
  run: () => void;
}

let all: { current: PaletteCommand[] }[] = [];
const watchers = new Set<() => void>();

export function useCommands(commands: PaletteCommand[]): void {
  const ref = useRef(commands);
  ref.current = commands;
  useEffect(() => {
    all = [...all, ref];
    for (const watcher of watchers) watcher();
    return () => {
      all = all.filter((other) => other !== ref);
      for (const watcher of watchers) watcher();
    };
  }, []);
}

/** Read when the palette opens. */
export function useRegisteredCommands(): PaletteCommand[] {
  const now = useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => all,
  );
  return now.flatMap((ref) => ref.current);
}
