// Raw messages in words.
import type { CallFrame } from "@/api/types";

export interface FrameLine {
  sent: boolean;
  /** Milliseconds after the first one. */
  at: number;
  what: string;
  about: string;
  bytes: number;
  text: string;
}

const record = (value: unknown): Record<string, unknown> => (typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {});
const words = (parts: unknown[]): string => parts.filter((part) => part !== undefined && part !== "").join(", ");

function say(message: unknown): { what: string; about: string } {
  if (typeof message === "string") return { what: "long message", about: "cut by the server" };
  const { method, id, params, result, error } = record(message);
  const number = id === undefined ? undefined : `id ${String(id)}`;
  if (typeof method === "string") {
    const { name, progress, total, message: text, uri } = record(params);
    const part = progress === undefined ? undefined : `${String(progress)}${total === undefined ? "" : ` of ${String(total)}`}`;
    return { what: method, about: words([number, name, uri, part, text]) };
  }
  if (error !== undefined) return { what: "error", about: words([number, record(error).code, record(error).message]) };
  if (result !== undefined) {
    const { isError, content } = record(result);
    return { what: "result", about: words([number, isError === true ? "isError true" : undefined, Array.isArray(content) ? `content[${content.length}]` : undefined]) };
  }
  return { what: "message", about: "" };
}

export function frameLines(frames: CallFrame[]): FrameLine[] {
  const start = Date.parse(frames[0]?.at ?? "");
  return frames.map((frame) => {
    const text = typeof frame.message === "string" ? frame.message : JSON.stringify(frame.message, null, 2);
    const bytes = new TextEncoder().encode(typeof frame.message === "string" ? frame.message : JSON.stringify(frame.message)).length;
    return { sent: frame.direction === "sent", at: Date.parse(frame.at) - start, ...say(frame.message), bytes, text };
  });
}
