// Pictures for README and manual, from a real server: docs/pictures/*.png (1280 × 800, light and dark) and
// terminal.svg. Times and ids that differ each time are replaced in the picture, so that pictures change only
// when the page does.
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { launch, openPage } from "../e2e/browser.mjs";
import { BIN, ending, run, start, startSegue } from "../e2e/segue.mjs";
import { shrink } from "./png.mjs";
import { screenOf, svgOf } from "./terminal.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const pictures = join(here, "..", "..", "docs", "pictures");
const KB_MAX = 150;
const COLUMNS = 92;
const showcase = join(here, "showcase");

function* filesOf(folder) {
  for (const name of readdirSync(folder).sort()) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) yield* filesOf(path);
    else yield path;
  }
}

/** Runs in the page: durations, clock times and ids become fixed ones. */
function settle() {
  const TIMES = ["0.31 s", "0.04 s", "0.12 s", "0.07 s", "0.09 s", "0.02 s", "0.05 s"];
  let next = 0;
  const rules = [
    [/\b\d\d:\d\d:\d\d\b/g, () => "10:24:05"],
    [/\b\d+ (s|m|h) ago\b/g, () => "2 m ago"],
    [/\b\d+(\.\d+)? (s|ms)\b/g, () => TIMES[next++ % TIMES.length]],
    [/\bin \d+ (s|m|h|d)\b/g, () => "in 12 h"],
    [/\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, () => "01a1ee9c-0c48-7000-b66f-83e3e0445d98"],
    [/^[0-9a-f]{6}$/g, () => "445d98"],
    [/127\.0\.0\.1:\d+/g, () => "127.0.0.1:7433"],
  ];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = rules.reduce((now, [from, to]) => now.replace(from, to), node.data);
    if (text !== node.data) node.data = text;
  }
  document.activeElement?.blur?.();
}

async function shoot(page, name, theme) {
  await page.waitForTimeout(700);
  await page.mouse.move(1279, 799);
  await page.evaluate(settle);
  const path = join(pictures, `${name}-${theme}.png`);
  writeFileSync(path, shrink(await page.screenshot({ animations: "disabled", caret: "hide" })));
  const kb = Math.round(statSync(path).size / 1024);
  console.log(`${relative(process.cwd(), path)}: ${kb} KB`);
  if (kb > KB_MAX) throw new Error(`${name}-${theme}.png has ${kb} KB, and ${KB_MAX} is the most`);
}

async function screens(segue, ids) {
  return [
    ["runs", "/", (page) => page.getByRole("row", { name: /weekly-report/ }).first().waitFor()],
    ["run-graph", `/runs/${ids.report}?step=announce`, (page) => page.locator(".node.s-success").first().waitFor()],
    ["run-failed", `/runs/${ids.failed}?step=publish`, (page) => page.getByText("the publisher answered 503").first().waitFor()],
    ["run-timeline", `/runs/${ids.report}?view=timeline`, (page) => page.getByText("announce").first().waitFor()],
    ["inbox", "/inbox", (page) => page.getByText("notes/old.draft").first().waitFor()],
    ["compositions", "/compositions/weekly-report", (page) => page.locator(".node").first().waitFor()],
    ["builder", "/edit?file=compositions%2Fweekly-report.yaml&step=announce", (page) => page.locator(".b-edge").first().waitFor()],
    ["tools", "/tools?tool=builtin%3Afiles_read", (page) => page.getByRole("heading", { name: /files_read/ }).first().waitFor()],
  ];
}

async function pages(suite, segue) {
  await run(segue, "count-words");
  const report = await run(segue, "weekly-report", ["-i", "folder=notes"]);
  const failed = await run(segue, "publish-notes");
  await segue.api("POST", "/compositions/execute", { name: "cleanup" });
  const ids = { report: report.run_id, failed: failed.run_id };
  const browser = await launch(suite);
  let session;
  for (const theme of ["light", "dark"]) {
    const page = await openPage(suite, browser, segue, { theme, session });
    session ??= await page.state();
    for (const [name, path, ready] of await screens(segue, ids)) {
      await page.goto(segue.url + path);
      await ready(page);
      await shoot(page, name, theme);
    }
  }
}

/** The last screen of `segue run` on a terminal. `script` gives it one. */
async function terminal() {
  const dir = mkdtempSync(join(tmpdir(), "segue-terminal-"));
  try {
    cpSync(showcase, dir, { recursive: true });
    mkdirSync(join(dir, ".bin"));
    symlinkSync(BIN, join(dir, ".bin", "segue"));
    const env = { PATH: `${join(dir, ".bin")}:${process.env.PATH}`, HOME: dir, LANG: "C.UTF-8", TERM: "xterm-256color", SEGUE_CONFIG: join(dir, "segue.yaml") };
    const commands = ["segue run weekly-report -i folder=notes", "segue run publish-notes"];
    const rows = [];
    for (const command of commands) {
      const { out } = await start("script", ["-qec", `stty cols ${COLUMNS} rows 50; ${command}`, "/dev/null"], { cwd: dir, env, stdin: "pipe" }).done;
      const prompt = [..."$ "].map((char) => ({ char, style: { color: "#57ab5a", bold: true, dim: false } }));
      const typed = [...command].map((char) => ({ char, style: { color: null, bold: true, dim: false } }));
      rows.push([...prompt, ...typed], ...screenOf(out, COLUMNS).filter((row) => row.length > 0), []);
    }
    rows.pop();
    const path = join(pictures, "terminal.svg");
    const svg = svgOf(rows, COLUMNS, "segue run: a report that succeeds, and a publication that fails and is rolled back");
    // Durations differ each time: a picture that differs only in them is kept.
    const same = (text) => text.replace(/\d+(\.\d+)? m?s/g, "0 s");
    if (!existsSync(path) || same(readFileSync(path, "utf8")) !== same(svg)) writeFileSync(path, svg);
    console.log(`${relative(process.cwd(), path)}: ${Math.round(statSync(path).size / 1024)} KB`);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

mkdirSync(pictures, { recursive: true });
const suite = ending();
try {
  const files = Object.fromEntries([...filesOf(showcase)].map((path) => [relative(showcase, path), readFileSync(path, "utf8")]));
  const { "segue.yaml": config, ...rest } = files;
  if (!process.argv.includes("--terminal")) await pages(suite, await startSegue(suite, { config, files: rest }));
  await terminal();
} finally {
  await suite.end();
}
