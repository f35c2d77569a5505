// Keeps an analysis of the text as it is typed: one request at a time, answers to older texts are dropped, and the places
// of the last answer move with the text until the next one comes.
import type { ChangeDesc } from "@codemirror/state";
import type { BuilderDocument } from "./document";
import type { Language } from "./language";
import type { Analysis, Finding, StepSpan } from "./model";

export const PAUSE_MS = 40;

export interface Checked {
  /** With places moved to where they are in the current text. */
  analysis: Analysis | null;
  /** The same with its places as they were answered: it stays the same object while somebody types. */
  read: Analysis | null;
  /** Whether the analysis is of the current text. */
  current: boolean;
  /** From the last change of the text to its findings. */
  tookMs: number | null;
  error: unknown;
}

export class Analyzer {
  private shot: Checked = { analysis: null, read: null, current: false, tookMs: null, error: null };
  private timer: ReturnType<typeof setTimeout> | undefined;
  private underWay: AbortController | null = null;
  private changedAt = performance.now();
  private watchers = new Set<() => void>();
  private stop: () => void;

  constructor(
    private readonly document: BuilderDocument,
    private readonly language: Pick<Language, "analyze">,
    private name: string | null,
  ) {
    this.stop = document.onChange(({ changes }) => {
      if (!changes) return;
      this.changedAt = performance.now();
      this.move(changes);
      this.schedule(PAUSE_MS);
    });
    this.schedule(0);
  }

  /** Files, tools or the name of the text changed. */
  refresh(name = this.name): void {
    this.name = name;
    this.changedAt = performance.now();
    this.schedule(0);
  }

  end(): void {
    this.stop();
    clearTimeout(this.timer);
    this.underWay?.abort();
  }

  readonly snapshot = (): Checked => this.shot;
  readonly subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  private set(change: Partial<Checked>): void {
    this.shot = { ...this.shot, ...change };
    for (const watcher of this.watchers) watcher();
  }

  private move(changes: ChangeDesc): void {
    const { analysis } = this.shot;
    this.set({ current: false, ...(analysis ? { analysis: moved(analysis, changes) } : {}) });
  }

  private schedule(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.ask(), ms);
  }

  private async ask(): Promise<void> {
    this.underWay?.abort();
    const asking = new AbortController();
    this.underWay = asking;
    const { text, version } = this.document.snapshot();
    try {
      const analysis = within(await this.language.analyze(text, this.name, asking.signal), text.length);
      if (asking.signal.aborted || this.document.snapshot().version !== version) return;
      // A text that cannot be read has no steps: the graph shows those from before.
      const before = this.shot.analysis?.steps ?? [];
      const isUnread = analysis.steps.length === 0 && !analysis.valid;
      // The same steps stay the same object: only then the graph need not be laid out again.
      const steps = isUnread || same(before, analysis.steps) ? before : analysis.steps;
      const tokens = isUnread ? (this.shot.analysis?.tokens ?? []) : analysis.tokens;
      const read = { ...analysis, steps, tokens };
      this.set({ analysis: read, read, current: true, tookMs: performance.now() - this.changedAt, error: null });
    } catch (error) {
      if (asking.signal.aborted) return;
      this.set({ error, current: false });
    } finally {
      if (this.underWay === asking) this.underWay = null;
    }
  }
}

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

function mapPlaces(analysis: Analysis, at: (position: number) => number): Analysis {
  const place = <T extends { start: number; end: number }>(one: T): T => {
    const start = at(one.start);
    return { ...one, start, end: Math.max(start, at(one.end)) };
  };
  return { ...analysis, findings: analysis.findings.map(place<Finding>), spans: analysis.spans.map(place<StepSpan>) };
}

/** No place is outside of the text: the editor refuses one, and with it what is typed. */
const within = (analysis: Analysis, length: number): Analysis => mapPlaces(analysis, (at) => Math.max(0, Math.min(length, at)));

/** The places after a change of the text. A step keeps what is written at its end. */
export const moved = (analysis: Analysis, changes: ChangeDesc): Analysis => mapPlaces(analysis, (at) => changes.mapPos(at, 1));
