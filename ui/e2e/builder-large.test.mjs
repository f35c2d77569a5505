// Typing in a composition of 1,000 steps: findings and completion come while one types. Times are printed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { bound, figure, launch, openPage } from "./browser.mjs";
import { CONFIG, openBuilder } from "./builder.mjs";
import { startSegue } from "./segue.mjs";

const FILE = "compositions/large.yaml";
const FINDINGS_MS = 150;
const COMPLETION_MS = 50;

function large(n) {
  const steps = Array.from({ length: n }, (_, i) => `  - id: s${i}\n    tool: echo\n    parameters: { i: ${i}, text: "{{ ${i >= 10 ? `s${i - 10}.i` : "input"} }}" }`);
  return `name: large\nsteps:\n${steps.join("\n")}\noutput: "{{ s${n - 1}.i }}"\n`;
}
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Times of the server alone, so that those of the page can be told from them. */
async function serverMs(segue, path, body) {
  const times = [];
  for (let i = 0; i < 5; i++) {
    const from = performance.now();
    await segue.api("POST", path, body);
    times.push(performance.now() - from);
  }
  return median(times);
}

describe("typing in 1,000 steps", () => {
  it("has findings and completion while one types", async (t) => {
    const browser = await launch(t);
    const text = large(1000);
    const segue = await startSegue(t, { config: CONFIG, files: { [FILE]: text } });
    const page = await openPage(t, browser, segue, { width: 1440, height: 900 });
    await openBuilder(page, segue, FILE);
    await page.locator(".node").first().waitFor();
    await page.waitForTimeout(3000);
    await page.evaluate(() => {
      const content = document.querySelector(".b-editor").shadowRoot.querySelector(".cm-content");
      content.focus();
      globalThis.keyTimes = [];
      let at = 0;
      content.addEventListener("beforeinput", () => (at = performance.now()));
      new MutationObserver(() => at && (globalThis.keyTimes.push(performance.now() - at), (at = 0))).observe(content, { subtree: true, childList: true, characterData: true });
    });
    await page.keyboard.press("Control+Home");
    await page.keyboard.press("End");
    const took = [];
    for (const letter of "# typed") {
      await page.keyboard.type(letter);
      await page.locator("[data-checked]").waitFor({ state: "detached" }).catch(() => {});
      await page.locator("[data-checked]").waitFor();
      took.push(Number(await page.locator("[data-checked]").getAttribute("data-checked")));
    }
    const server = await serverMs(segue, "/language/analyze", { text, name: FILE });
    const keys = await page.evaluate(() => globalThis.keyTimes);
    figure(t, "1,000 steps: from a key to the letter", `median ${Math.round(median(keys))} ms`);
    figure(t, "1,000 steps: from a key to the findings", `median ${median(took)} ms, of it the server ${Math.round(server)} ms and a pause of 40 ms`);

    // Completion: from the answer of the server to the list.
    await page.keyboard.press("Control+End");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("End");
    // Into the name in `s999.i }}"`.
    for (let i = 0; i < 7; i++) await page.keyboard.press("ArrowLeft");
    const lists = [];
    page.on("response", async (response) => {
      if (!response.url().endsWith("/language/complete")) return;
      await response.finished();
      const from = performance.now();
      await page.locator(".cm-tooltip-autocomplete").waitFor();
      lists.push(performance.now() - from);
    });
    for (let i = 0; i < 5; i++) {
      const listed = lists.length;
      await page.keyboard.press("Control+Space");
      await page.locator(".cm-tooltip-autocomplete").waitFor();
      while (lists.length === listed) await page.waitForTimeout(10);
      await page.keyboard.press("Escape");
      await page.locator(".cm-tooltip-autocomplete").waitFor({ state: "detached" });
    }
    const complete = await serverMs(segue, "/language/complete", { text, name: FILE, at: text.lastIndexOf(".i }}") - 1 });
    figure(t, "1,000 steps: from the server's completion to the list", `median ${Math.round(median(lists))} ms; the server takes ${Math.round(complete)} ms`);
    assert.ok(took.length === 7 && lists.length === 5);
    bound(median(took) <= FINDINGS_MS + server, `${median(took)} ms`);
    bound(median(lists) <= COMPLETION_MS, `${median(lists)} ms`);
    await page.check();
  });
});
