// Where steps and findings stand in the text.
import type { CompositionDetail, DiagnosticView, PlanStepView } from "@/api/types";
import type { Look } from "@/graph/looks";
import type { CodeMark, CodeNote } from "@/parts/CodeView";
import { plural } from "@/lib/format";

type Span = CompositionDetail["spans"][number];

/** The path of each step of this text by its id, which is unique there. The steps of a called composition are not in it. */
function pathsById(steps: PlanStepView[], prefix = "", out = new Map<string, string>()): Map<string, string> {
  for (const step of steps) {
    const path = prefix + step.id;
    out.set(step.id, path);
    if (!step.tool) for (const body of step.bodies ?? []) pathsById(body.steps, `${path}/`, out);
  }
  return out;
}

/** The places with paths as graph and plan have them; the server names steps by id. */
export function placesOf({ spans, plan }: CompositionDetail): Span[] {
  const paths = pathsById(plan?.steps ?? []);
  return spans.map((span) => ({ ...span, step: paths.get(span.step) ?? span.step }));
}

const inside = (span: Span, line: number): boolean => span.line <= line && line <= span.end_line;

/** The innermost step at a line. */
export function stepAt(spans: Span[], line: number): string | null {
  const around = spans.filter((span) => inside(span, line));
  around.sort((a, b) => a.end_line - a.line - (b.end_line - b.line) || b.step.length - a.step.length);
  return around[0]?.step ?? null;
}

export const spanOf = (spans: Span[], step: string | null): Span | null => spans.find((span) => span.step === step) ?? null;

export function marksOf(findings: DiagnosticView[], selected: Span | null): CodeMark[] {
  const wavy = findings.map((one): CodeMark => {
    // A finding without an extent still gets a line below something.
    const empty = one.end_line === one.line && one.end_column <= one.column;
    return { from: { line: one.line, column: one.column }, to: { line: one.end_line, column: empty ? one.column + 1 : one.end_column }, tone: one.severity === "error" ? "failed" : "warning" };
  });
  if (!selected) return wavy;
  return [{ from: { line: selected.line, column: selected.column }, to: { line: selected.end_line, column: selected.end_column }, tone: "selected" }, ...wavy];
}

/** One note per line: the worst finding's tone, every message. */
export function notesOf(findings: DiagnosticView[]): CodeNote[] {
  const lines = new Map<number, CodeNote>();
  for (const one of findings) {
    const tone = one.severity === "error" ? "failed" : "warning";
    const old = lines.get(one.line);
    lines.set(one.line, { line: one.line, tone: old?.tone === "failed" ? "failed" : tone, text: old ? `${old.text}\n${one.message}` : one.message });
  }
  return [...lines.values()];
}

/** The badges of steps that have findings. */
export function looksOf(findings: DiagnosticView[], spans: Span[]): Map<string, Look> {
  const counts = new Map<string, { errors: number; others: number }>();
  for (const one of findings) {
    const step = stepAt(spans, one.line);
    if (!step) continue;
    const count = counts.get(step) ?? { errors: 0, others: 0 };
    if (one.severity === "error") count.errors++;
    else count.others++;
    counts.set(step, count);
  }
  return new Map(
    [...counts].map(([step, { errors, others }]) => [
      step,
      { corner: { text: errors > 0 ? plural(errors, "error") : plural(others, "warning"), tone: errors > 0 ? "failed" : "waiting", icon: errors > 0 ? "s-failed" : "i-warn" } } satisfies Look,
    ]),
  );
}
