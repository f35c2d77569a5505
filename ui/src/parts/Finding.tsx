import type { DiagnosticView } from "@/api/types";
import { Icon } from "./Icon";
import { SafeText } from "./SafeText";

const TONE = { error: "failed", warning: "waiting", hint: "dry_run" } as const;

/** One finding: severity, message, place, and what to do. */
export function Finding({ finding, onOpen }: { finding: DiagnosticView; onOpen?: () => void }) {
  const tone = TONE[finding.severity];
  const place = `${finding.file}:${finding.line}:${finding.column}`;
  return (
    <div className={`find s-${tone}`}>
      <div className="find-h">
        <Icon name={tone === "failed" ? "s-failed" : "i-warn"} label={finding.severity} />
        <b><SafeText text={finding.message} /></b>
        <code>{finding.code}</code>
      </div>
      {onOpen ? (
        <button type="button" className="link" onClick={onOpen}><SafeText text={place} /></button>
      ) : (
        <span className="muted"><SafeText text={place} /></span>
      )}
      {finding.help && <p><b>What helps: </b><SafeText text={finding.help} /></p>}
    </div>
  );
}
