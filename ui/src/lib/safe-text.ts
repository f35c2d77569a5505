// Text of tools and people is hostile until shown as what it is: control characters and marks that
// reorder or hide text become visible codes.
const CODES = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]|[\u{e0000}-\u{e0fff}]/gu;

export interface TextPart {
  text: string;
  code: boolean;
}

export function textParts(text: string): TextPart[] {
  const parts: TextPart[] = [];
  let from = 0;
  for (const match of text.matchAll(CODES)) {
    if (match.index > from) parts.push({ text: text.slice(from, match.index), code: false });
    const hex = (match[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
    parts.push({ text: `U+${hex}`, code: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), code: false });
  return parts;
}

/** The same as one string, for titles and attributes. */
export function plainText(text: string): string {
  return textParts(text)
    .map((part) => (part.code ? `⟨${part.text}⟩` : part.text))
    .join("");
}

export function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  // Never between the halves of a surrogate pair.
  const end = /[\ud800-\udbff]$/.test(text.slice(0, most)) ? most - 1 : most;
  return `${text.slice(0, end)}…`;
}
