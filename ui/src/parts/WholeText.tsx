import { memo, useMemo } from "react";
import { SafeText } from "./SafeText";

const PART_MOST = 20_000;

/** Pieces of a text, broken at line ends where there are some, never between the halves of a character. */
export function pieces(text: string, most = PART_MOST): string[] {
  const out: string[] = [];
  for (let from = 0; from < text.length; ) {
    let to = Math.min(text.length, from + most);
    const line = to < text.length ? text.lastIndexOf("\n", to - 1) : -1;
    if (line >= from) to = line + 1;
    else if (to < text.length && /[\ud800-\udbff]/.test(text.charAt(to - 1))) to--;
    out.push(text.slice(from, to));
    from = to;
  }
  return out;
}

/** A text that must not be cut, however long: the browser lays out only the pieces in view. */
export const WholeText = memo(function WholeText({ text, label }: { text: string; label: string }) {
  const parts = useMemo(() => pieces(text), [text]);
  return (
    <pre className="code whole" tabIndex={0} role="region" aria-label={label}>
      {parts.map((part, i) => (
        <div key={i} className={parts.length > 1 ? "piece" : undefined}>
          <SafeText text={part.endsWith("\n") ? part.slice(0, -1) : part} most={Infinity} />
        </div>
      ))}
    </pre>
  );
});
