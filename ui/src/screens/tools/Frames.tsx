import { useMemo } from "react";
import type { CallFrame } from "@/api/types";
import { bytes, plural } from "@/lib/format";
import { CopyButton } from "@/parts/Copy";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { WholeText } from "@/parts/WholeText";
import { frameLines } from "./frame-lines";

const SHOWN_MOST = 500;

/** The messages between Segue and the server of the tool, without secrets. */
export function Frames({ frames }: { frames: CallFrame[] }) {
  const lines = useMemo(() => frameLines(frames), [frames]);
  return (
    <section className="tframes" aria-label="Raw frames">
      <div className="row">
        <h3>Raw frames</h3>
        <span className="muted">{lines.length === 0 ? "its server does not speak JSON-RPC" : `${plural(lines.length, "message")}, secrets taken out`}</span>
        <span className="grow" />
        {lines.length > 0 && <CopyButton text={() => JSON.stringify(frames, null, 2)} label="Copy all frames" />}
      </div>
      <div className="scroll" tabIndex={0} role="region" aria-label="Messages">
        {lines.slice(0, SHOWN_MOST).map((line, i) => (
          <details key={i}>
            <summary>
              <Icon name={line.sent ? "i-out" : "i-in"} label={line.sent ? "sent" : "received"} />
              <span className="num">{line.at} ms</span>
              <span className="mono"><SafeText text={line.what} most={80} /></span>
              <span className="mono ell t2"><SafeText text={line.about} most={300} /></span>
              <span className="muted num r">{bytes(line.bytes)}</span>
            </summary>
            <WholeText text={line.text} label={`Message ${i + 1}`} />
          </details>
        ))}
        {lines.length > SHOWN_MOST && <p className="muted">and {lines.length - SHOWN_MOST} more: copy all frames to see them.</p>}
      </div>
    </section>
  );
}
