// One event stream per tab. It names the runs whose steps are on screen; EventSource resumes by itself,
// and after a change of that list the stream is opened again `after` the last event.
import { useSyncExternalStore } from "react";
import type { RunStatus, RunSummary } from "./types";

export interface StepEvent {
  run_id: string;
  seq: number;
  event: string;
  at_ms: number;
  step: string;
  detail: string | null;
}
export interface StreamEvents {
  /** `gap`: events were missed since the cursor, so everything is to be read again. */
  ready: { gap?: boolean };
  run: RunSummary;
  questions: { count: number };
  step: StepEvent;
  ended: { run_id: string; status: RunStatus };
  changed: { compositions?: boolean };
}
export type StreamState = "connecting" | "live" | "lost";
type Listener<K extends keyof StreamEvents> = (data: StreamEvents[K]) => void;

const KINDS = ["run", "questions", "step", "ended", "changed"] as const;
const RETRY_FIRST_MS = 500;
const RETRY_MOST_MS = 15_000;

export class EventStream {
  private source: EventSource | null = null;
  private readonly runs = new Map<string, { count: number; entries: number }>();
  private readonly listeners = new Map<string, Set<Listener<never>>>();
  private readonly watchers = new Set<() => void>();
  private state: StreamState = "connecting";
  private cursor = "";
  private opened = "";
  private started = false;
  private retry = RETRY_FIRST_MS;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly make: (url: string) => EventSource = (url) => new EventSource(url)) {}

  start(): void {
    this.started = true;
    this.open();
  }

  stop(): void {
    this.started = false;
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    this.opened = "";
  }

  /**
   * Asks for the steps of a run until the returned function is called: those after the first `entries` of its
   * journal, which the page has read already.
   */
  watch(run: string, entries: number): () => void {
    const known = this.runs.get(run);
    this.runs.set(run, { count: (known?.count ?? 0) + 1, entries: known?.entries ?? entries });
    this.reopenSoon();
    return () => {
      const now = this.runs.get(run);
      if (now && now.count > 1) this.runs.set(run, { ...now, count: now.count - 1 });
      else this.runs.delete(run);
      this.reopenSoon();
    };
  }

  on<K extends keyof StreamEvents>(kind: K, listener: Listener<K>): () => void {
    const set = this.listeners.get(kind) ?? new Set();
    this.listeners.set(kind, set);
    set.add(listener as Listener<never>);
    return () => set.delete(listener as Listener<never>);
  }

  readonly subscribe = (callback: () => void): (() => void) => {
    this.watchers.add(callback);
    return () => this.watchers.delete(callback);
  };
  readonly current = (): StreamState => this.state;

  private url(): string {
    const watched = [...this.runs].sort(([a], [b]) => a.localeCompare(b));
    const query = new URLSearchParams(watched.map(([id, { entries }]) => ["run", `${id}@${entries}`]));
    if (this.cursor) query.set("after", this.cursor);
    const text = query.toString();
    return `/api/v1/events${text ? `?${text}` : ""}`;
  }

  private wanted(): string {
    return [...this.runs.keys()].sort().join(" ");
  }

  /** Several parts of a screen change the list at once: one new stream is enough. */
  private reopenSoon(): void {
    if (!this.started) return;
    queueMicrotask(() => {
      if (this.started && this.wanted() !== this.opened) this.open();
    });
  }

  private open(): void {
    clearTimeout(this.timer);
    this.source?.close();
    this.opened = this.wanted();
    const source = this.make(this.url());
    this.source = source;
    source.onopen = () => this.opens();
    source.addEventListener("ready", (event) => {
      this.opens();
      this.receive("ready", event as MessageEvent<string>);
    });
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.receive(kind, event as MessageEvent<string>));
    source.onerror = () => this.fails(source);
  }

  private opens(): void {
    this.retry = RETRY_FIRST_MS;
    this.become("live");
  }

  private fails(source: EventSource): void {
    this.become("lost");
    // A refused stream (2 = CLOSED) does not come back by itself.
    if (source.readyState !== 2 || source !== this.source) return;
    this.timer = setTimeout(() => this.started && this.open(), this.retry);
    this.retry = Math.min(this.retry * 2, RETRY_MOST_MS);
  }

  private receive(kind: keyof StreamEvents, event: MessageEvent<string>): void {
    if (event.lastEventId) this.cursor = event.lastEventId;
    let data: never;
    try {
      data = JSON.parse(event.data) as never;
    } catch {
      return;
    }
    for (const listener of this.listeners.get(kind) ?? []) listener(data);
  }

  private become(state: StreamState): void {
    if (state === this.state) return;
    this.state = state;
    for (const watcher of this.watchers) watcher();
  }
}

export const stream = new EventStream();

export function useStreamState(): StreamState {
  return useSyncExternalStore(stream.subscribe, stream.current);
}
