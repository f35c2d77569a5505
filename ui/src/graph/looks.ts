// What changes on a laid-out graph: states, times, strips. Kept outside of React, so that a live update
// draws only the nodes whose look changed.
import { createContext, useContext, useSyncExternalStore, type ReactNode } from "react";
import type { AnyState } from "@/parts/State";

export interface Look {
  /** Absent in a composition, which has not run. */
  state?: AnyState;
  /** At the right of the head: `Failed 16.5 s`. */
  when?: string;
  attempts?: number;
  /** The badge at the corner: rollback order, or a finding. */
  corner?: { text: string; tone: AnyState; icon?: string };
  /** Of a branch: whether it was taken. */
  taken?: boolean;
  /** Of a container: what stands beside its name. */
  about?: string;
  /** Set while the step is rolled back or was. */
  back?: boolean;
  /** Of a loop: a cell per item or group of items. */
  cells?: Cell[];
  progress?: string;
  failedText?: string;
  /** Of a loop: the item whose steps the body shows. */
  item?: number;
  /** Of a step that an edit removed: it is shown until the text is saved. */
  ghost?: boolean;
  /** Runs and tests can take its output from a test file. */
  pin?: boolean;
}
export interface Cell {
  state: "success" | "failed" | "running" | "pending" | "skipped";
  /** The first item of the group. */
  first: number;
  last: number;
}

export class Looks {
  private now = new Map<string, Look>();
  private texts = new Map<string, string>();
  private watchers = new Set<() => void>();
  private count = 0;

  /** Takes the next looks; a look that did not change stays the same object. */
  set(next: ReadonlyMap<string, Look>): void {
    const now = new Map<string, Look>();
    const texts = new Map<string, string>();
    let changed = next.size !== this.now.size;
    for (const [path, look] of next) {
      const text = JSON.stringify(look);
      const old = this.now.get(path);
      const same = old !== undefined && this.texts.get(path) === text;
      if (!same) changed = true;
      now.set(path, same ? old : look);
      texts.set(path, text);
    }
    if (!changed) return;
    this.now = now;
    this.texts = texts;
    this.count++;
    for (const watcher of this.watchers) watcher();
  }

  get(path: string): Look | undefined {
    return this.now.get(path);
  }
  readonly version = (): number => this.count;
  readonly subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };
}

export interface GraphContext {
  looks: Looks;
  selected: string | null;
  collapsed: ReadonlySet<string>;
  onSelect: (path: string) => void;
  onToggle: (path: string) => void;
  /** Opens an item of a loop. */
  onItem?: (loop: string, item: number) => void;
  /** Beside the strip of a loop, such as a menu of items. */
  stripEnd?: (loop: string) => ReactNode;
  /** Over a step's node, such as a handle to connect it. */
  onNode?: (path: string) => ReactNode;
}

export const GraphCtx = createContext<GraphContext>({
  looks: new Looks(),
  selected: null,
  collapsed: new Set(),
  onSelect: () => {},
  onToggle: () => {},
});

export function useLook(path: string): Look | undefined {
  const { looks } = useContext(GraphCtx);
  return useSyncExternalStore(looks.subscribe, () => looks.get(path));
}
