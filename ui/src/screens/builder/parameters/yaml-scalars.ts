// Scalars of YAML 1.2 as JSON values.

const INTEGER = /^[-+]?\d+$/;
const FLOAT = /^[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?$/;
const BASED = /^0(o[0-7]+|x[0-9a-fA-F]+)$/;

export function plainScalar(text: string): unknown {
  if (/^(~|null|Null|NULL|)$/.test(text)) return null;
  if (/^(true|True|TRUE)$/.test(text)) return true;
  if (/^(false|False|FALSE)$/.test(text)) return false;
  if (INTEGER.test(text) || FLOAT.test(text) || BASED.test(text)) {
    const number = Number(text.replace(/^\+/, ""));
    // A number that a double cannot hold is shown as it is written.
    return INTEGER.test(text) && !Number.isSafeInteger(number) ? text : number;
  }
  return folded(text);
}

/** A line break with the indentation around it is a space; an empty line is a line break. */
function folded(text: string): string {
  return text.replace(/[ \t]*\r?\n[ \t]*((?:\r?\n[ \t]*)*)/g, (_, empty: string) => "\n".repeat((empty.match(/\n/g) ?? []).length) || " ");
}

const ESCAPES: Record<string, string> = { "0": "\0", a: "\x07", b: "\b", t: "\t", n: "\n", v: "\v", f: "\f", r: "\r", e: "\x1b", N: "\x85", _: "\xa0", L: "\u2028", P: "\u2029" };
const ESCAPE = /\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(\r?\n)[ \t]*|([^]))/g;

export function quotedText(text: string): string {
  const inner = text.slice(1, text.length > 1 && text.endsWith(text[0] ?? "") ? -1 : undefined);
  if (text.startsWith("'")) return folded(inner).replaceAll("''", "'");
  return unbroken(inner).replace(ESCAPE, (_, x?: string, u?: string, long?: string, line?: string, one?: string) => {
    const hex = x ?? u;
    if (hex) return String.fromCharCode(Number.parseInt(hex, 16));
    if (long) return codePoint(Number.parseInt(long, 16));
    return line ? "" : (ESCAPES[one ?? ""] ?? one ?? "");
  });
}

/** Folds the lines of a double-quoted text, but leaves a break that a backslash takes away. */
function unbroken(text: string): string {
  if (!text.includes("\n")) return text;
  return text.replace(/(\\\r?\n)|[ \t]*\r?\n[ \t]*((?:\r?\n[ \t]*)*)/g, (whole, escaped: string | undefined, empty: string | undefined) => (escaped ? whole : "\n".repeat((empty?.match(/\n/g) ?? []).length) || " "));
}

const codePoint = (code: number): string => (code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd");

/** A `|` or `>` text. `whole` and `from` say how far the line that begins it is indented. */
export function blockText(text: string, whole: string, from: number): string {
  const end = text.indexOf("\n");
  const header = (end < 0 ? text : text.slice(0, end)).trim();
  // Of the trailing line breaks the parser keeps none: they are read from the whole text.
  const after = /^(\r?\n[ \t]*)*/.exec(whole.slice(from + text.length))?.[0] ?? "";
  const lines = (end < 0 ? "" : text.slice(end + 1)).split(/\r?\n/);
  const given = Number(/[1-9]/.exec(header)?.[0] ?? 0);
  const least = Math.min(...lines.filter((line) => line.trim() !== "").map((line) => line.length - line.trimStart().length));
  const indent = given > 0 ? parentIndent(whole, from) + given : Number.isFinite(least) ? firstIndent(lines) : 0;
  const body = lines.map((line) => line.slice(Math.min(indent, line.length - line.trimStart().length)));
  const joined = (header.startsWith(">") ? foldLines(body) : body.join("\n")).replace(/\n+$/, "");
  if (header.includes("-")) return joined;
  const kept = header.includes("+") ? Math.max(1, (after.match(/\n/g) ?? []).length) : 1;
  return joined === "" && !header.includes("+") ? "" : joined + "\n".repeat(kept);
}

const firstIndent = (lines: string[]): number => {
  const first = lines.find((line) => line.trim() !== "") ?? "";
  return first.length - first.trimStart().length;
};

function parentIndent(whole: string, from: number): number {
  const line = whole.slice(whole.lastIndexOf("\n", from - 1) + 1, from);
  return /^[ -]*/.exec(line)?.[0].length ?? 0;
}

/** Lines that are indented further keep their breaks. */
function foldLines(lines: string[]): string {
  let out = "";
  lines.forEach((line, i) => {
    const before = lines[i - 1];
    if (i === 0) out = line;
    else if (line === "") out += "\n";
    else if (before === "" || /^[ \t]/.test(line) || /^[ \t]/.test(before ?? "")) out += before === "" ? line : `\n${line}`;
    else out += ` ${line}`;
  });
  return out;
}
