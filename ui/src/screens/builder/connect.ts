// Fields of a value and of a schema, as paths in expressions: `items[0].title`.
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const FIELDS_MOST = 200;
const DEPTH_MOST = 5;

const join = (path: string, key: string): string => (NAME.test(key) ? (path ? `${path}.${key}` : key) : `${path}['${key.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}']`);
const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

export function fieldsOfValue(value: unknown): string[] {
  const out: string[] = [];
  const visit = (one: unknown, path: string, depth: number) => {
    if (out.length >= FIELDS_MOST || depth > DEPTH_MOST) return;
    if (path) out.push(path);
    if (Array.isArray(one) && one.length > 0) visit(one[0], `${path}[0]`, depth + 1);
    // A value that the server cut says only its size.
    else if (isObject(one) && !("$cut" in one)) for (const [key, inner] of Object.entries(one)) visit(inner, join(path, key), depth + 1);
  };
  visit(value, "", 0);
  return out;
}

export function fieldsOfSchema(schema: unknown): string[] {
  const out: string[] = [];
  const visit = (one: unknown, path: string, depth: number) => {
    if (!isObject(one) || out.length >= FIELDS_MOST || depth > DEPTH_MOST) return;
    if (path) out.push(path);
    if (isObject(one.properties)) for (const [key, inner] of Object.entries(one.properties)) visit(inner, join(path, key), depth + 1);
    if (isObject(one.items)) visit(one.items, `${path}[0]`, depth + 1);
  };
  visit(schema, "", 0);
  return out;
}

export function parametersOf(schema: unknown): string[] {
  return isObject(schema) && isObject(schema.properties) ? Object.keys(schema.properties) : [];
}
