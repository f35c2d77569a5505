// Bundles the extension into `dist/`, or with `--tests` its tests into `out/`.

import { build } from "esbuild";
import { readdirSync } from "node:fs";

const common = { bundle: true, platform: "node", target: "node20", logLevel: "warning" };

if (process.argv.includes("--tests")) {
  const files = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
  await build({
    ...common,
    entryPoints: files.map((name) => `test/${name}`),
    outdir: "out",
    format: "esm",
    outExtension: { ".js": ".mjs" },
  });
} else {
  await build({
    ...common,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.js",
    format: "cjs",
    // The editor provides it.
    external: ["vscode"],
    minify: true,
    sourcemap: false,
    legalComments: "eof",
  });
}
