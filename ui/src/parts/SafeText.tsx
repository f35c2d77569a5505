import { memo } from "react";
import { cut, textParts } from "@/lib/safe-text";

/** Text that a tool, a model or a stranger wrote. Use it for every value that the page did not write itself. */
export const SafeText = memo(function SafeText({ text, most = 2000 }: { text: string; most?: number }) {
  return (
    <bdi>
      {textParts(cut(text, most)).map((part, i) => (part.code ? <span key={i} className="ctl">{part.text}</span> : part.text))}
    </bdi>
  );
});

/** `github:create_release`, the server's name quieter. */
export function ToolName({ tool }: { tool: string }) {
  const at = tool.indexOf(":");
  return (
    <span className="tool">
      {at > 0 && <i><SafeText text={tool.slice(0, at + 1)} /></i>}
      <SafeText text={at > 0 ? tool.slice(at + 1) : tool} />
    </span>
  );
}
