// What another process does appears without a reload: a run from the command line, and its violent end.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { figure, launch, openPage } from "./browser.mjs";
import { CONFIG, slow } from "./fixtures.mjs";
import { startSegue } from "./segue.mjs";

const STEPS = 6;
const MS = 700;
const LATENCY_MS_MAX = 300;

/** Notes when each text of a new row of the list was on screen. */
function watchRows() {
  globalThis.shown = [];
  const note = () => {
    for (const row of document.querySelectorAll("[data-run]")) {
      const text = row.textContent ?? "";
      if (globalThis.shown.at(-1)?.text !== text) globalThis.shown.push({ at: performance.timeOrigin + performance.now(), text });
    }
  };
  new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
}

/** Notes when each step of the graph had each state. */
function watchSteps() {
  globalThis.steps = [];
  const known = new Map();
  const note = () => {
    for (const node of document.querySelectorAll(".node")) {
      const id = node.querySelector("b")?.textContent;
      const state = /\bs-(\w+)/.exec(node.className)?.[1];
      if (known.get(id) === state) continue;
      known.set(id, state);
      globalThis.steps.push({ at: performance.timeOrigin + performance.now(), id, state });
    }
  };
  note();
  new MutationObserver(note).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["class"] });
}

const lines = (text) => text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
const summary = (list) => {
  const sorted = [...list].map(Math.round).sort((a, b) => a - b);
  return `median ${sorted[Math.floor(sorted.length / 2)]} ms, worst ${sorted.at(-1)} ms of ${sorted.length}`;
};

describe("a run of another process", () => {
  it("appears in the list and moves, without a reload", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/slow.yaml": slow("slow", STEPS, MS) } });
    const page = await openPage(t, browser, segue);
    let loads = 0;
    page.on("framenavigated", () => loads++);
    await page.getByText("Nothing has run yet").waitFor();
    await page.evaluate(watchRows);
    const { out } = await segue.cli(["run", "slow", "-o", "ndjson"]).done;
    await page.getByRole("row", { name: /Success.*slow/ }).waitFor();
    const shown = await page.evaluate(() => globalThis.shown);
    const events = lines(out);
    const first = events.find((event) => event.event === "step_started");
    const appeared = shown.find((one) => one.text.includes("slow"));
    const late = [appeared.at - first.at_ms];
    const done = events.filter((event) => event.event === "step_succeeded");
    const ended = shown.find((one) => one.text.includes("Success"));
    late.push(ended.at - done.at(-1).at_ms);
    // Each event of the run changes its row: the first change after it.
    for (const event of done.slice(0, -1)) late.push(shown.find((one) => one.at > event.at_ms).at - event.at_ms);
    figure(t, "list: event of another process → screen", summary(late));
    assert.equal(loads, 0);
    assert.ok(late.sort((a, b) => a - b)[Math.floor(late.length / 2)] <= LATENCY_MS_MAX, summary(late));
    await page.check();
  });

  it("moves in the open graph", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/slow.yaml": slow("slow", STEPS, MS) } });
    const page = await openPage(t, browser, segue);
    const cli = segue.cli(["run", "slow", "-o", "ndjson"]);
    await page.getByRole("row", { name: /slow/ }).getByRole("link").click();
    await page.locator(".node").first().waitFor();
    await page.evaluate(watchSteps);
    const { out } = await cli.done;
    await page.locator(".node.s-success").nth(STEPS - 1).waitFor();
    const seen = await page.evaluate(() => globalThis.steps);
    const from = seen[0].at;
    const late = [];
    for (const event of lines(out)) {
      const state = { step_started: "running", step_succeeded: "success" }[event.event];
      const on = state && event.at_ms > from && seen.find((one) => one.id === event.step && one.state === state);
      if (on) late.push(on.at - event.at_ms);
    }
    assert.ok(late.length >= STEPS, `only ${late.length} changes were seen: ${JSON.stringify(seen)}`);
    figure(t, "graph: event of another process → screen", summary(late));
    assert.ok(late.sort((a, b) => a - b)[Math.floor(late.length / 2)] <= LATENCY_MS_MAX, summary(late));
    await page.check();
  });

  it("that was killed is shown as interrupted, with what its completed steps gave", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/slow.yaml": slow("slow", 4, 400) } });
    const page = await openPage(t, browser, segue);
    const cli = segue.cli(["run", "slow", "-o", "ndjson"]);
    await cli.out.find(/"step_succeeded".*"s1"/);
    cli.child.kill("SIGKILL");
    const killed = performance.now();
    await cli.done;
    const row = page.getByRole("row", { name: /Interrupted.*slow/ });
    await row.waitFor({ timeout: 60_000 });
    figure(t, "kill -9 → the list says so", `${Math.round(performance.now() - killed)} ms`);
    await row.getByRole("link").click();
    await page.getByText(/interrupted/i).first().waitFor();
    await page.locator(".node.s-success", { hasText: "s1" }).click();
    await page.getByText("value 1").first().waitFor();
    assert.equal(await page.locator(".node.s-success", { hasText: "s3" }).count(), 0);
    await page.getByRole("button", { name: /^Resume/ }).first().click();
    await page.locator(".node.s-success", { hasText: "s3" }).waitFor();
    await page.check();
  });
});
