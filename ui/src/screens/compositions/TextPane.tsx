import { useMemo, useState } from "react";
import type { CompositionDetail } from "@/api/types";
import { plural } from "@/lib/format";
import { CodeView } from "@/parts/CodeView";
import { CopyButton } from "@/parts/Copy";
import { Finding } from "@/parts/Finding";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { marksOf, notesOf, spanOf } from "./places";

interface Props {
  detail: CompositionDetail;
  spans: CompositionDetail["spans"];
  step: string | null;
  /** The line to bring into view. */
  line: number | undefined;
  onLine: (line: number) => void;
}

/** The text, with its findings at their places and in a list below. */
export function TextPane({ detail, spans, step, line, onLine }: Props) {
  const { findings } = detail;
  const [jump, setJump] = useState<number | null>(null);
  const marks = useMemo(() => marksOf(findings, spanOf(spans, step)), [findings, spans, step]);
  const notes = useMemo(() => notesOf(findings), [findings]);
  const errors = findings.filter((one) => one.severity === "error").length;
  return (
    <section className="comp-text" aria-label="Text">
      <div className="bar">
        <h2>{detail.format === "yaml" ? "YAML" : "JSON"}</h2>
        <span className="muted ell">{detail.file ? <SafeText text={detail.file} most={200} /> : "made from a tool"}{detail.dialect !== "composition" && `, dialect ${detail.dialect}`}</span>
        <span className="grow" />
        <CopyButton text={detail.text} label="Copy the text" />
      </div>
      <CodeView text={detail.text} format={detail.format} label={`Text of ${detail.summary.name}`} marks={marks} notes={notes} line={jump ?? line} onLine={(at) => { setJump(null); onLine(at); }} />
      <div className="comp-findings">
        {findings.length === 0 ? (
          <span className="st s-success"><Icon name="s-success" />No findings</span>
        ) : (
          <>
            <h3>{[errors > 0 && plural(errors, "error"), findings.length > errors && plural(findings.length - errors, "warning")].filter(Boolean).join(", ")}</h3>
            <div className="findings" tabIndex={0} role="region" aria-label="Findings">
              {findings.map((one, i) => <Finding key={i} finding={one} onOpen={() => setJump(one.line)} />)}
            </div>
          </>
        )}
      </div>
    </section>
  );
}
