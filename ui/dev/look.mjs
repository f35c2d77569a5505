// Looks at the built page in Chromium, against the mock server: screenshots in light and dark, axe, and no
// message of the content security policy. `node dev/look.mjs [name …]` looks at some screens only.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { screens } from "./look-screens.mjs";

const base = process.env.PAGE_URL ?? "http://127.0.0.1:7434";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const wanted = process.argv.slice(2);
const shots = new URL("../shots/", import.meta.url).pathname;
mkdirSync(shots, { recursive: true });

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
let bad = 0;

async function check(page, name) {
  // Injected through the debugger, which the policy does not concern.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  for (const one of violations) {
    if (["serious", "critical"].includes(one.impact)) bad++;
    console.log(`  axe ${one.impact} ${one.id}: ${one.nodes.length}× ${one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(" | ")} — ${one.nodes[0].failureSummary?.split("\n")[1]?.trim()}`);
  }
}

for (const { name, path, act } of await screens(base)) {
  if (wanted.length && !wanted.some((one) => name.startsWith(one))) continue;
  for (const [theme, width] of [["light", 1440], ["dark", 1440], ["light", 1024]]) {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: theme });
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) {
        bad++;
        console.log(`  console: ${message.text().slice(0, 300)}`);
      }
    });
    page.on("pageerror", (error) => {
      bad++;
      console.log(`  error: ${error.message.slice(0, 300)}`);
    });
    await page.goto(base + path);
    await page.waitForTimeout(900);
    await act?.(page);
    await page.waitForTimeout(300);
    const file = `${name}-${theme}${width < 1200 ? `-${width}` : ""}.png`;
    await page.screenshot({ path: shots + file });
    console.log(file);
    await check(page, name);
    await page.close();
  }
}
await browser.close();
console.log(bad === 0 ? "nothing serious" : `${bad} to mend`);
process.exitCode = bad === 0 ? 0 : 1;
