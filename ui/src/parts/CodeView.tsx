import { useEffect, useRef } from "react";

export interface CodeMark {
  from: { line: number; column: number };
  to: { line: number; column: number };
  tone: "failed" | "waiting" | "selected" | "warning";
}
/** Beside a line: that it has findings. */
export interface CodeNote {
  line: number;
  tone: "failed" | "warning";
  text: string;
}

interface Props {
  text: string;
  /** `json`; everything else is read as YAML. */
  format: string;
  label: string;
  marks?: CodeMark[];
  notes?: CodeNote[];
  /** The line to bring into view. */
  line?: number;
  /** Called with the line under the cursor. */
  onLine?: (line: number) => void;
}

/**
 * Read-only source text. The editor lives in a shadow root: there CodeMirror adopts constructed style
 * sheets, so the page needs no inline style element.
 */
export function CodeView({ text, format, label, marks, notes, line, onLine }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const handle = useRef<{ update: (props: Props) => void; destroy: () => void } | null>(null);
  const props: Props = { text, format, label, marks, notes, line, onLine };
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    let gone = false;
    void import("./code-mirror").then(({ mount }) => {
      if (gone || !host.current) return;
      handle.current = mount(host.current, () => latest.current);
    });
    return () => {
      gone = true;
      handle.current?.destroy();
      handle.current = null;
    };
  }, []);
  useEffect(() => handle.current?.update(latest.current), [text, format, marks, notes, line]);
  return <div ref={host} className="codeview" />;
}
