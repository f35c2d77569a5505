// A person without a mouse, and one with nothing else, build a composition of three steps with a loop, check it, run it
// and save it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, launch, openPage } from "./browser.mjs";
import { CONFIG, addByKeys, choosePlace, isChecked, node, onDisk, save } from "./builder.mjs";
import { HELLO } from "./fixtures.mjs";
import { startSegue } from "./segue.mjs";

const SAVED = "compositions/greet-all.yaml";

/** Exactly what was built, whatever the writer's style: the server runs it. */
async function isBuilt(segue) {
  const text = onDisk(segue, SAVED);
  const { findings, steps } = await segue.api("POST", "/language/analyze", { text });
  assert.deepEqual(findings.filter((one) => one.severity === "error"), []);
  assert.deepEqual(steps.map((one) => one.id), ["start", "each", "count"]);
  assert.deepEqual(steps[1].bodies[0].steps.map((one) => one.id), ["say"]);
  return text;
}

async function runs(segue, page) {
  await page.locator(".node.s-success", { hasText: "count" }).waitFor();
  const { runs } = await segue.api("GET", "/runs?name=greet-all");
  assert.equal(runs[0].status, "success");
  const view = await segue.api("GET", `/runs/${runs[0].run_id}`);
  assert.deepEqual(view.output, { chars: 3 });
}

describe("the keyboard alone", () => {
  it("builds, checks, runs and saves three steps with a loop", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/hello.yaml": HELLO } });
    const page = await openPage(t, browser, segue);
    const key = async (...keys) => {
      for (const one of keys) await page.keyboard.press(one);
    };
    // To the builder by the palette; no mouse from here on.
    await key("g", "c");
    await page.getByRole("heading", { level: 1, name: "Compositions" }).waitFor();
    await key("Control+k");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.type("new composition");
    await page.getByRole("option", { name: "New composition", exact: true }).waitFor();
    await key("Enter");
    await page.getByRole("heading", { level: 1, name: "New composition" }).waitFor();
    await tabTo(page, /^Nothing/);
    await key("Enter");
    await page.locator(".b-editor").waitFor();
    await isChecked(page);

    await addByKeys(page, "builtin:echo");
    await node(page, "echo").waitFor();
    await key("F2");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.type("start");
    await key("Enter");
    await node(page, "start").waitFor();

    await addByKeys(page, "loop");
    await node(page, "each").waitFor();

    await key("n");
    await page.keyboard.type("builtin:echo");
    await key("Enter");
    await choosePlace(page, "first in each");
    await key("Enter");
    await node(page, "echo").waitFor();
    await key("F2");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.type("say");
    await key("Enter");
    await node(page, "say").waitFor();

    await key("n");
    await page.keyboard.type("text_stats");
    await key("Enter");
    await choosePlace(page, "after each");
    await key("Enter");
    await node(page, "text_stats").waitFor();
    await key("F2");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.type("count");
    await key("Enter");
    await node(page, "count").waitFor();

    // The text, with completion; F6 goes from pane to pane.
    await writeText(page, `name: greet-all
description: Greets everybody
steps:
  - id: start
    tool: builtin:echo
    parameters: { names: [a, b, c] }
  - id: each
    loop:
      over: "{{ start.names }}"
      steps:
        - id: say
          tool: builtin:echo
          parameters: { txet: "{{ item }}" }
  - id: count
    tool: builtin:text_stats
    parameters: { txt: "{{ each | map(attribute='txet') | join }}" }
output: { chars: "{{ count.chars }}" }
`);
    await isChecked(page);
    // A finding, on its node and in the text: F8 goes there, Ctrl . mends it.
    await page.locator(".node .corner", { hasText: "error" }).waitFor();
    await key("F8", "Control+.");
    await page.locator(".node .corner").waitFor({ state: "detached" });
    assert.deepEqual(await axe(page), []);

    await key("Control+s");
    await page.getByRole("dialog").waitFor();
    await page.getByRole("textbox", { name: "File" }).fill(SAVED);
    await key("Enter");
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    await page.waitForURL(/file=/);
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await isBuilt(segue);

    await key("Control+Enter");
    await page.getByRole("dialog").waitFor();
    await key("Control+Enter");
    await runs(segue, page);
    assert.deepEqual(await axe(page), []);
    await page.check();
  });
});

/** Presses Tab until a control of this name has the focus. */
async function tabTo(page, name) {
  for (let i = 0; i < 60; i++) {
    if (name.test(await page.evaluate(() => document.activeElement?.textContent ?? ""))) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab does not reach ${name}`);
}

/** Puts a text into the editor as a person does who pastes it. */
async function writeText(page, text) {
  for (let i = 0; i < 6; i++) {
    if (await page.evaluate(() => document.activeElement?.classList.contains("b-editor") ?? false)) break;
    await page.keyboard.press("F6");
  }
  await page.keyboard.press("Control+a");
  await page.keyboard.insertText(text);
}

const BEGUN = `name: greet-all   # kept
input: { type: object, properties: { words: { type: string, default: "a\\nb\\nc" } } }
steps: []
`;

describe("the mouse alone", () => {
  it("builds three steps with a loop by dragging, connects them, checks, saves and runs", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/hello.yaml": HELLO, [SAVED]: BEGUN } });
    const page = await openPage(t, browser, segue, { width: 1440, height: 900 });
    await page.goto(`${segue.url}/edit?file=${encodeURIComponent(SAVED)}`);
    const tool = (name) => page.getByRole("option", { name });
    await tool(/^text_split/).waitFor();
    await tool(/^text_split/).dragTo(page.locator(".b-empty"));
    await node(page, "text_split").waitFor();
    await page.getByRole("button", { name: "loop" }).dragTo(page.locator(".plan-graph"), { targetPosition: { x: 300, y: 480 } });
    await node(page, "each").waitFor();
    // Into the loop: the middle of its node while it has no steps.
    await tool(/^text_stats/).dragTo(node(page, "each"), { targetPosition: { x: 120, y: 40 } });
    await node(page, "text_stats").waitFor();
    await tool(/^echo/).dragTo(page.locator(".plan-graph"), { targetPosition: { x: 300, y: 520 } });
    await node(page, "echo").waitFor();
    await page.getByRole("button", { name: "Show everything" }).click();
    // Values onto fields: the input, what a tool's schema says that it gives, and the item of the loop.
    await use(page, "text_split", "input.words", "/parameters/text");
    await use(page, "each", "text_split.parts", "/loop/over");
    await use(page, "text_stats", "item", "/parameters/text");
    // From the loop's handle to the last step.
    await node(page, "each").hover({ position: { x: 60, y: 12 } });
    await node(page, "each").locator(".b-connect").first().dragTo(node(page, "echo"));
    await page.getByRole("dialog").waitFor();
    await page.getByRole("button", { name: "Connect", exact: true }).click();
    await page.locator(".e.depends").waitFor({ state: "attached" });
    await page.getByText("No findings").waitFor();
    await page.getByRole("button", { name: /^Save/ }).click();
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    const text = onDisk(segue, SAVED);
    assert.ok(text.startsWith(BEGUN.slice(0, BEGUN.indexOf("steps"))), text);
    const { steps } = await segue.api("POST", "/language/analyze", { text });
    assert.deepEqual(steps.map((one) => one.id), ["text_split", "each", "echo"]);
    assert.deepEqual(steps[1].bodies[0].steps.map((one) => one.id), ["text_stats"]);
    assert.deepEqual(steps[2].depends_on, ["each"]);
    await page.getByRole("button", { name: /^Run/ }).first().click();
    await page.getByRole("dialog").getByRole("button", { name: "Run", exact: false }).last().click();
    await page.locator(".node.s-success", { hasText: "echo" }).waitFor();
    const { runs: all } = await segue.api("GET", "/runs?name=greet-all");
    const view = await segue.api("GET", `/runs/${all[0].run_id}`);
    assert.deepEqual([view.status, view.steps.filter((one) => /text_stats$/.test(one.id)).length], ["success", 3]);
    await page.check();
  });
});

/** Selects a step, and drags a value onto one of its fields. */
async function use(page, step, value, field) {
  await node(page, step).click({ position: { x: 60, y: 12 } });
  const pane = page.getByRole("region", { name: `Step ${step}` });
  await pane.getByRole("radio", { name: "Values" }).click();
  const row = pane.getByRole("treeitem").filter({ has: page.getByRole("button", { name: `Copy {{ ${value} }}`, exact: true, includeHidden: true }) });
  await row.dragTo(pane.locator(`[data-field="${field}"]`));
  await pane.locator(`[data-field="${field}"]`, { hasText: value }).waitFor();
}
