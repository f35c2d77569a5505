// The words of an expression, for colours. The server alone decides what they mean.
export type WordKind = "brace" | "name" | "member" | "filter" | "keyword" | "text" | "number";
export interface Word {
  from: number;
  to: number;
  kind: WordKind;
}

const KEYWORDS = new Set(["and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "null", "lambda"]);
const PART = /\s+|'(?:[^'\\]|\\[^])*'?|"(?:[^"\\]|\\[^])*"?|\d+(?:\.\d+)?|[\p{L}_$][\p{L}\p{N}_$]*(?:-[\p{L}\p{N}_$]+)*|\}\}|[^]/gu;

/** The words of a text with holes, or of a condition, which is one expression. */
export function words(text: string, condition: boolean): Word[] {
  if (condition && !text.includes("{{")) return inside(text, 0, text.length);
  const out: Word[] = [];
  for (let at = text.indexOf("{{"); at >= 0; ) {
    out.push({ from: at, to: at + 2, kind: "brace" });
    const own = inside(text, at + 2, text.length);
    out.push(...own);
    const end = own.at(-1)?.kind === "brace" ? (own.at(-1)?.to ?? text.length) : text.length;
    at = text.indexOf("{{", end);
  }
  return out;
}

/** Up to the closing braces, which are the last word where there are some. */
function inside(text: string, from: number, to: number): Word[] {
  const out: Word[] = [];
  let before = "";
  PART.lastIndex = from;
  for (let match = PART.exec(text); match && match.index < to; match = PART.exec(text)) {
    const [part] = match;
    const kind = kindOf(part, before);
    if (kind) out.push({ from: match.index, to: match.index + part.length, kind });
    if (kind === "brace") return out;
    if (part.trim() !== "") before = part;
  }
  return out;
}

function kindOf(part: string, before: string): WordKind | null {
  if (part === "}}") return "brace";
  if (/^['"]/.test(part)) return "text";
  if (/^\d/.test(part)) return "number";
  if (!/^[\p{L}_$]/u.test(part)) return null;
  if (before === ".") return "member";
  if (KEYWORDS.has(part)) return "keyword";
  return before === "|" || before === "is" ? "filter" : "name";
}

/** Whether a position is inside an expression, where names can be completed. */
export function insideExpression(text: string, at: number, condition: boolean): boolean {
  if (condition && !text.includes("{{")) return true;
  const open = at < 2 ? -1 : text.lastIndexOf("{{", at - 2);
  if (open < 0) return false;
  const own = inside(text.slice(open + 2), 0, text.length);
  const end = own.at(-1)?.kind === "brace" ? open + 2 + (own.at(-1)?.from ?? 0) : text.length;
  return at <= end;
}
