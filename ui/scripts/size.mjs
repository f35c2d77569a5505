// Fails when the built page is larger than its budgets.
import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { compressed, files } from "./compress.mjs";

const dist = join(dirname(fileURLToPath(import.meta.url)), "..", "dist");
const KB = 1024;
const BUDGET_ALL = 600 * KB;
const BUDGET_FIRST = 250 * KB;
const FIRST_SCREEN = "src/screens/runs/index.tsx";

const manifest = JSON.parse(readFileSync(join(dist, "manifest.json"), "utf8"));
const sizes = new Map();
for (const path of files(dist)) {
  const name = relative(dist, path);
  if (name !== "manifest.json") sizes.set(name, compressed(readFileSync(path)).length);
}

function reach(key, seen = new Set()) {
  const chunk = manifest[key];
  if (!chunk || seen.has(key)) return seen;
  seen.add(key);
  for (const next of chunk.imports ?? []) reach(next, seen);
  return seen;
}

const keys = new Set([...reach("index.html"), ...reach(FIRST_SCREEN)]);
if (!keys.has(FIRST_SCREEN)) throw new Error(`${FIRST_SCREEN} is not in the manifest`);
const first = new Set(["index.html"]);
for (const key of keys) {
  first.add(manifest[key].file);
  for (const css of manifest[key].css ?? []) first.add(css);
}
const sum = (names) => [...names].reduce((total, name) => total + (sizes.get(name) ?? 0), 0);
const all = sum(sizes.keys());
const screen = sum(first);
for (const [name, bytes] of [...sizes].sort((a, b) => b[1] - a[1]))
  console.log(`${(bytes / KB).toFixed(1).padStart(7)} KB ${first.has(name) ? "*" : " "} ${name}`);
console.log(`first screen (*): ${(screen / KB).toFixed(1)} KB of ${BUDGET_FIRST / KB}`);
console.log(`all: ${(all / KB).toFixed(1)} KB of ${BUDGET_ALL / KB}`);
if (all > BUDGET_ALL || screen > BUDGET_FIRST) {
  console.error("the page is too large");
  process.exit(1);
}
