// Values as words.

/** A string as it is, everything else as JSON. */
export function asText(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

/** A text that the engine evaluates before it is sent. */
export const isTemplate = (value: unknown): value is string => typeof value === "string" && value.includes("{{");

export type Parsed = { ok: true; value: unknown } | { ok: false; message: string };

export function parseJson(text: string): Parsed {
  if (text.trim() === "") return { ok: true, value: undefined };
  try {
    return { ok: true, value: JSON.parse(text) as unknown };
  } catch (error) {
    return { ok: false, message: `not JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
}

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

export function parseNumber(text: string, integer: boolean): Parsed {
  const plain = text.trim();
  if (plain === "") return { ok: true, value: undefined };
  const value = Number(plain);
  if (!NUMBER.test(plain) || !Number.isFinite(value)) return { ok: false, message: integer ? "must be a whole number" : "must be a number" };
  if (/^-?\d+$/.test(plain) && !Number.isSafeInteger(value)) return { ok: false, message: "too large for the page to send exactly" };
  return { ok: true, value };
}
