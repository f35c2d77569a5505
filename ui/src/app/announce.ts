// The one polite live region. It speaks at most once a second; the newest text wins.
import { useSyncExternalStore } from "react";

const PAUSE_MS = 1000;
let text = "";
let waiting: string | null = null;
let last = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
const watchers = new Set<() => void>();

function speak(): void {
  timer = undefined;
  if (waiting === null) return;
  text = waiting;
  waiting = null;
  last = Date.now();
  for (const watcher of watchers) watcher();
}

export function announce(message: string): void {
  waiting = message;
  if (timer) return;
  const wait = Math.max(0, last + PAUSE_MS - Date.now());
  if (wait === 0) speak();
  else timer = setTimeout(speak, wait);
}

export function useAnnouncement(): string {
  return useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => text,
  );
}
