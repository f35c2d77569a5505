// Reading search parameters of the address: anything may stand there, so every reader checks.
export type Search = Record<string, unknown>;

export function text(search: Search, key: string): string | undefined {
  const value = search[key];
  if (typeof value === "string") return value || undefined;
  return typeof value === "number" ? String(value) : undefined;
}

export function oneOf<T extends string>(search: Search, key: string, options: readonly T[]): T | undefined {
  const value = search[key];
  return options.find((option) => option === value);
}

export function flag(search: Search, key: string): true | undefined {
  return search[key] === true || search[key] === "true" || search[key] === 1 ? true : undefined;
}

export function list(search: Search, key: string): string[] | undefined {
  const value = search[key];
  const items = Array.isArray(value) ? value.filter((item) => typeof item === "string") : typeof value === "string" ? [value] : [];
  return items.length > 0 ? items : undefined;
}
