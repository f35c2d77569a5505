import { useEffect, useState } from "react";
import { announce } from "@/app/announce";
import { IconButton } from "./Button";

export async function copy(text: string, what = "Copied"): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure context only the old way works.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(what);
}

export function CopyButton({ text, label, size = "small" }: { text: string | (() => string); label: string; size?: "small" | undefined }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1200);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <IconButton
      icon={done ? "s-success" : "i-copy"}
      label={done ? "Copied" : label}
      kind="ghost"
      size={size}
      onClick={() => void copy(typeof text === "string" ? text : text()).then(() => setDone(true))}
    />
  );
}
