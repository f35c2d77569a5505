// The finding under the cursor, and its fixes.
import { useEffect, useState } from "react";
import { announce } from "@/app/announce";
import { plainText } from "@/lib/safe-text";
import type { Builder } from "./builder";
import { useBuilder, useChecked, useText } from "./builder";
import { findingAt } from "./marks";
import type { CodeAction, Finding } from "./model";

export interface Open {
  finding: Finding;
  actions: readonly CodeAction[];
  /** The version of the text that the fixes are for. */
  version: number;
}
const NONE: readonly CodeAction[] = [];

/** The finding on the line of the cursor, first without its fixes, then with them. */
export function useOpenFinding(): Open | null {
  const builder = useBuilder();
  const findings = useChecked((checked) => (checked.current ? (checked.analysis?.findings ?? []) : null));
  const cursor = useText((now) => now.cursor);
  const version = useText((now) => now.version);
  const [open, setOpen] = useState<Open | null>(null);
  const finding = findings ? findingAt(builder.document.state, findings, cursor) : null;
  const key = finding ? `${version} ${finding.start} ${finding.code} ${finding.message}` : "";
  useEffect(() => {
    if (!finding) return setOpen(null);
    setOpen({ finding, actions: NONE, version });
    let gone = false;
    void fixesOf(builder, finding).then((actions) => !gone && actions.length > 0 && setOpen({ finding, actions, version }));
    return () => {
      gone = true;
    };
    // The key says what of the finding matters.
    // eslint-disable-next-line
  }, [builder, key]);
  return open;
}

export async function fixesOf(builder: Builder, finding: Finding): Promise<CodeAction[]> {
  const { text } = builder.document.snapshot();
  const actions = await builder.language.actions(text, builder.snapshot().file.path, finding.start, finding.end).catch(() => []);
  return actions.filter((one) => one.edits.length > 0).sort((a, b) => Number(b.code === finding.code) - Number(a.code === finding.code) || Number(b.preferred) - Number(a.preferred));
}

export function applyFix(builder: Builder, action: CodeAction, version: number): void {
  if (builder.document.apply(action.edits, version)) announce(`Done: ${plainText(action.title)}`);
  else announce("The text changed meanwhile; nothing was done");
}

/** `Ctrl .`: the best fix of the finding at the cursor, else of the selected step's first finding, else of the first one. */
export async function quickFix(builder: Builder): Promise<void> {
  const { analysis, current } = builder.analyzer.snapshot();
  if (!analysis || !current) return announce("The text is being checked");
  const { cursor, version } = builder.document.snapshot();
  const { selected } = builder.snapshot();
  const span = analysis.spans.find((one) => one.step === selected);
  const inStep = span ? analysis.findings.filter((one) => one.start >= span.start && one.end <= span.end) : [];
  const here = findingAt(builder.document.state, analysis.findings, cursor);
  const candidates = [...(here ? [here] : []), ...inStep, ...analysis.findings];
  for (const finding of new Set(candidates)) {
    const [fix] = await fixesOf(builder, finding);
    if (fix) return applyFix(builder, fix, version);
  }
  announce(candidates.length > 0 ? "No finding here has a fix" : "There are no findings");
}

/** Moves the cursor to the next or previous finding, and speaks it. */
export function goToFinding(builder: Builder, by: 1 | -1): void {
  const findings = [...(builder.analyzer.snapshot().analysis?.findings ?? [])].sort((a, b) => a.start - b.start);
  const { cursor } = builder.document.snapshot();
  const after = findings.filter((one) => (by > 0 ? one.start > cursor : one.start < cursor));
  const next = (by > 0 ? after[0] : after.at(-1)) ?? (by > 0 ? findings[0] : findings.at(-1));
  if (!next) return announce("There are no findings");
  builder.document.dispatch({ selection: { anchor: next.start }, scrollIntoView: true, userEvent: "select" });
  announce(`${next.severity}: ${plainText(next.message)}`);
}
