// The time scale of the timeline, and the bars of a step.
import type { StepDetail, StepView } from "@/api/types";

export interface Bar {
  kind: "wait" | "run" | "fail" | "pause" | "back" | "back-live" | "live" | "lost" | "skip";
  from: number;
  to: number;
}

const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 6000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000];

/** A span of time in milliseconds; for the timeline, since the beginning of the run. */
export interface Span {
  from: number;
  to: number;
}

const ZOOM_STEP = 1.5;
const SHOWN_LEAST_MS = 5;

/** Makes a span shorter or longer within `0..whole`; `part` of it (0 is its beginning, 1 its end) stays where it is. Null is the whole. */
export function zoomed(span: Span, whole: number, inwards: boolean, part: number): Span | null {
  const width = span.to - span.from;
  const next = Math.max(Math.min(SHOWN_LEAST_MS, whole), inwards ? width / ZOOM_STEP : width * ZOOM_STEP);
  return next >= whole ? null : within(span.from + part * (width - next), next, whole);
}

/** Moves a span by a quarter of itself. */
export function moved(span: Span, whole: number, onwards: boolean): Span {
  const width = span.to - span.from;
  return within(span.from + (onwards ? width : -width) / 4, width, whole);
}

function within(from: number, width: number, whole: number): Span {
  const start = Math.max(0, Math.min(whole - width, from));
  return { from: start, to: start + width };
}

/** Two to nine marks. */
export function ticks({ from, to }: Span): number[] {
  const total = to - from;
  const step = STEPS_MS.find((one) => total / one <= 8) ?? 86_400_000 * Math.ceil(total / 86_400_000 / 8);
  const out: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
  return out;
}

/** The parts of bars that a span shows. */
export function barsWithin(bars: Bar[], { from, to }: Span): Bar[] {
  const shown = bars.filter((bar) => bar.to >= from && bar.from <= to);
  return shown.map((bar) => ({ ...bar, from: Math.max(from, bar.from), to: Math.min(to, bar.to) }));
}

export function tickText(ms: number, total: number): string {
  if (total < 1000 && ms < 10_000) return `${ms} ms`;
  if (total < 120_000) return `${ms / 1000} s`;
  if (total < 7_200_000) return `${Math.floor(ms / 60_000)}:${String(Math.round(ms / 1000) % 60).padStart(2, "0")}`;
  return `${Math.round(ms / 3_600_000)} h`;
}

const ms = (iso: string | null | undefined): number | null => (iso ? Date.parse(iso) : null);

/**
 * The bars of a step: waiting from the moment when what it needs was there, each attempt with the pause after
 * it, then the rollback. Without details, one bar from beginning to end.
 */
export function barsOf(view: StepView | undefined, detail: StepDetail | undefined, readyAt: number | null, waiting: boolean, now: number): Bar[] {
  const bars: Bar[] = [];
  const start = ms(view?.started_at);
  const end = ms(view?.completed_at);
  if (!view || start === null) {
    if (waiting && readyAt !== null) bars.push({ kind: "wait", from: readyAt, to: now });
    return bars;
  }
  if (readyAt !== null && start - readyAt > 1) bars.push({ kind: "wait", from: readyAt, to: start });
  if (waiting) bars.push({ kind: "wait", from: start, to: now });
  else if (detail && detail.attempts.length > 0) bars.push(...attemptBars(detail, now));
  else bars.push({ kind: kindOf(view), from: start, to: end ?? now });
  bars.push(...rollbackBars(view, detail, now));
  return bars;
}

function kindOf(view: StepView): Bar["kind"] {
  if (view.status === "failed") return "fail";
  if (view.status === "in_doubt") return "lost";
  return view.completed_at ? "run" : "live";
}

function attemptBars(detail: StepDetail, now: number): Bar[] {
  return detail.attempts.flatMap((attempt): Bar[] => {
    const from = Date.parse(attempt.started_at);
    const to = attempt.duration_ms === null || attempt.duration_ms === undefined ? now : from + attempt.duration_ms;
    const kind = attempt.outcome === "done" ? "run" : attempt.outcome === "open" ? "live" : attempt.outcome === "failed" ? "fail" : "lost";
    const bar: Bar = { kind, from, to };
    return attempt.pause_ms ? [bar, { kind: "pause", from: to, to: to + attempt.pause_ms }] : [bar];
  });
}

function rollbackBars(view: StepView, detail: StepDetail | undefined, now: number): Bar[] {
  const events = detail?.rollback?.events ?? [];
  const called = ms(events.find((event) => event.what === "called")?.at);
  if (called === null) return [];
  const over = ms(events.findLast((event) => event.what === "rolled_back" || event.what === "failed")?.at);
  return [{ kind: over === null && view.status === "running" ? "back-live" : "back", from: called, to: over ?? now }];
}
