// Writes the built page into the crate that embeds it: every file as `.gz` only, with no time inside,
// so that the same sources give the same bytes on every machine.
import { mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const from = join(here, "..", "dist");
const to = process.env.SEGUE_PAGE_DIR ?? join(here, "..", "..", "crates", "segue", "page");

export function* files(folder) {
  for (const name of readdirSync(folder).sort()) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) yield* files(path);
    else yield path;
  }
}

export function compressed(bytes) {
  const out = gzipSync(bytes, { level: 9 });
  out.writeUInt32LE(0, 4); // modification time
  out[9] = 255; // operating system: unknown
  return out;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  rmSync(to, { recursive: true, force: true });
  let total = 0;
  for (const path of files(from)) {
    const name = relative(from, path);
    if (name === "manifest.json") continue;
    const bytes = compressed(readFileSync(path));
    total += bytes.length;
    const target = join(to, `${name}.gz`);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, bytes);
  }
  console.log(`${relative(process.cwd(), to)}: ${(total / 1024).toFixed(1)} KB gzip`);
}
