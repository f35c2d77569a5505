import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
const KEY = "segue-theme";
const watchers = new Set<() => void>();
const dark = typeof matchMedia === "function" ? matchMedia("(prefers-color-scheme: dark)") : null;

function read(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}
let theme = read();

function apply(): void {
  const now = theme === "system" ? (dark?.matches ? "dark" : "light") : theme;
  document.documentElement.dataset.theme = now;
}

export function startTheme(): void {
  apply();
  dark?.addEventListener("change", apply);
}

export function setTheme(next: Theme): void {
  theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // A browser without storage forgets it at reload.
  }
  apply();
  for (const watcher of watchers) watcher();
}

export const nextTheme = (now: Theme): Theme => (now === "system" ? "light" : now === "light" ? "dark" : "system");

export function useTheme(): Theme {
  return useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => theme,
  );
}
