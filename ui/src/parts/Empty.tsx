import type { ReactNode } from "react";
import { CopyButton } from "./Copy";

/** An empty screen says what to do next. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <div className="empty-in">
        <h2>{title}</h2>
        {children}
      </div>
    </div>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <div className="code cmd">
      <code>{text}</code>
      <CopyButton text={text} label={`Copy ${text}`} />
    </div>
  );
}
