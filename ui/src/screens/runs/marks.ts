// The (at most two) runs that are marked to be compared.
import { useSyncExternalStore } from "react";

let marked: readonly string[] = [];
const watchers = new Set<() => void>();

export function toggleMark(id: string): readonly string[] {
  marked = marked.includes(id) ? marked.filter((one) => one !== id) : [...marked, id].slice(-2);
  for (const watcher of watchers) watcher();
  return marked;
}

export function clearMarks(): void {
  marked = [];
  for (const watcher of watchers) watcher();
}

export function useMarks(): readonly string[] {
  return useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => marked,
  );
}
