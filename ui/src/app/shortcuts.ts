// All keys of the page. A screen registers its own while it is shown; the newest registration wins.
import { useEffect, useRef } from "react";

/** `j`, `Enter`, `Shift+R`, `Ctrl+K` (Cmd on a Mac), or a sequence such as `g r`. */
export type Shortcuts = Record<string, (event: KeyboardEvent) => void | boolean>;

const stack: { current: Shortcuts }[] = [];
const SEQUENCE_MS = 1200;
let prefix = "";
let prefixAt = 0;

export function keyName(event: KeyboardEvent): string {
  const mod = event.ctrlKey || event.metaKey ? "Ctrl+" : "";
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const letter = key.length === 1 && /[a-z]/.test(key);
  return `${mod}${event.shiftKey && (letter || key.length > 1) ? "Shift+" : ""}${letter && event.shiftKey ? key.toUpperCase() : key}`;
}

function typing(target: EventTarget | null): boolean {
  const element = target instanceof Element ? target : null;
  return !!element?.closest("input, textarea, select, [contenteditable=true], .cm-editor, [role=menu]");
}

export function handleKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const name = keyName(event);
  const real = event.composedPath()[0] ?? event.target;
  // While text is typed, or a dialog is open, only keys with Ctrl are the page's.
  const quiet = typing(real) || document.querySelector("dialog[open]") !== null;
  if (quiet && !name.startsWith("Ctrl+")) return;
  const now = Date.now();
  const sequence = prefix && now - prefixAt < SEQUENCE_MS ? `${prefix} ${name}` : "";
  prefix = "";
  for (const wanted of [sequence, name]) {
    if (!wanted) continue;
    for (let i = stack.length - 1; i >= 0; i--) {
      const run = stack[i]?.current[wanted];
      if (run && run(event) !== false) {
        event.preventDefault();
        return;
      }
    }
  }
  if (stack.some(({ current }) => Object.keys(current).some((keys) => keys.startsWith(`${name} `)))) {
    prefix = name;
    prefixAt = now;
  }
}

export function useShortcuts(shortcuts: Shortcuts): void {
  const ref = useRef(shortcuts);
  ref.current = shortcuts;
  useEffect(() => {
    stack.push(ref);
    return () => {
      const at = stack.indexOf(ref);
      if (at >= 0) stack.splice(at, 1);
    };
  }, []);
}
