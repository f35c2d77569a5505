import { useEffect, useRef, useState } from "react";
import { useBuilder, useChecked, useShown, useText } from "./builder";
import { mountEditor } from "./editor";
import { applyFix, useOpenFinding } from "./fixes";
import { formatOf } from "./files";
import { setOpen, setShown } from "./marks";
import { setTokens } from "./tokens";
import { CopyButton } from "@/parts/Copy";

const POSITION = (text: string, at: number): string => {
  const before = text.slice(0, at);
  const line = before.lastIndexOf("\n") + 1;
  return `${(before.match(/\n/g)?.length ?? 0) + 1}:${Array.from(before.slice(line)).length + 1}`;
};

/** The text. Its cursor and the selection of the graph follow each other. */
export function TextPane() {
  const builder = useBuilder();
  const host = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<ReturnType<typeof mountEditor>["view"] | null>(null);
  useEffect(() => {
    if (!host.current) return;
    const mounted = mountEditor(host.current, builder.document);
    setView(mounted.view);
    return () => {
      mounted.end();
      setView(null);
    };
  }, [builder]);
  const read = useChecked((checked) => checked.read);
  const selected = useShown((shown) => shown.selected);
  const open = useOpenFinding();
  useEffect(() => {
    // With places as they are by now; the editor itself moves them while somebody types.
    const { analysis } = builder.analyzer.snapshot();
    const span = analysis?.spans.find((one) => one.step === selected) ?? null;
    view?.dispatch({ effects: setShown.of({ findings: analysis?.findings ?? [], selected: span }) });
  }, [view, read, selected, builder]);
  const words = read?.tokens;
  useEffect(() => {
    // Of an older text they would stand at other places; the next analysis is under way then.
    if (view && words && builder.analyzer.snapshot().current) view.dispatch({ effects: setTokens.of(words) });
  }, [view, words, builder]);
  useEffect(() => {
    view?.dispatch({ effects: setOpen.of(open ? { ...open, onFix: (action) => applyFix(builder, action, open.version) } : null) });
  }, [view, open, builder]);
  const position = useText((now) => POSITION(now.text, now.cursor));
  const format = formatOf(useShown((shown) => shown.file.path));
  return (
    <section className="b-text" aria-label="Text" data-pane>
      <div className="b-head">
        <h2>{format === "json" ? "JSON" : "YAML"}</h2>
        <span className="muted ell">selection follows the graph</span>
        <span className="grow" />
        <span className="muted num" aria-label="Line and column">{position}</span>
        <CopyButton text={() => builder.document.snapshot().text} label="Copy the text" />
      </div>
      {/* The editor inside draws the ring. */}
      <div ref={host} className="codeview b-editor" data-ring />
    </section>
  );
}
