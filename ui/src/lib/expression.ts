const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** Single quotes, because expressions mostly stand inside double-quoted YAML. */
const quoted = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

/** The expression that names a value inside a step's output: `{{ release.assets[0].name }}`. */
export function expression(root: string, keys: (string | number)[]): string {
  return `{{ ${NAME.test(root) ? root : `steps[${quoted(root)}].output`}${below(keys)} }}`;
}

/** The same inside the value, without its name: `assets[0].name`. */
export const valuePath = (keys: (string | number)[]): string => below(keys).replace(/^\./, "");

const below = (keys: (string | number)[]): string =>
  keys.map((key) => (typeof key === "number" ? `[${key}]` : NAME.test(key) ? `.${key}` : `[${quoted(key)}]`)).join("");

/** RFC 6901. */
export function pointer(keys: (string | number)[]): string {
  return keys.map((key) => `/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}
