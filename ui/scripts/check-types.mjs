// Fails when src/api/schema.d.ts is not what openapi-typescript makes of ../schema/openapi.json.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ui = join(dirname(fileURLToPath(import.meta.url)), "..");
const folder = mkdtempSync(join(tmpdir(), "segue-types-"));
try {
  const fresh = join(folder, "schema.d.ts");
  const tool = join(ui, "node_modules", ".bin", "openapi-typescript");
  execFileSync(tool, [join(ui, "..", "schema", "openapi.json"), "-o", fresh], { stdio: "pipe" });
  if (readFileSync(fresh, "utf8") !== readFileSync(join(ui, "src/api/schema.d.ts"), "utf8")) {
    console.error("src/api/schema.d.ts is stale: run `npm run types`");
    process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
