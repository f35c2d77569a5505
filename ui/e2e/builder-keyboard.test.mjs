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

describe("the mouse alone", () => {
  it("builds three steps with a loop by dragging, connects them, runs and saves", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/hello.yaml": HELLO, [SAVED]: `name: greet-all   # kept\nsteps: []\n` } });
    const page = await openPage(t, browser, segue, { width: 1440, height: 900 });
    await page.goto(`${segue.url}/edit?file=${encodeURIComponent(SAVED)}`);
    const tool = (name) => page.getByRole("option", { name });
    await tool(/^echo/).waitFor();
    await tool(/^echo/).dragTo(page.locator(".b-empty"));
    await node(page, "echo").waitFor();
    await page.getByRole("button", { name: "loop" }).dragTo(page.locator(".plan-graph"), { targetPosition: { x: 300, y: 480 } });
    await node(page, "each").waitFor();
    // Into the loop: the middle of its node while it has no steps.
    await tool(/^echo/).dragTo(node(page, "each"), { targetPosition: { x: 120, y: 40 } });
    await node(page, "echo_2").waitFor();
    await tool(/^text_stats/).dragTo(page.locator(".plan-graph"), { targetPosition: { x: 300, y: 520 } });
    await node(page, "text_stats").waitFor();
    // From the loop's handle to the last step.
    const handle = node(page, "each").locator(".b-connect");
    await node(page, "each").hover({ position: { x: 60, y: 12 } });
    await handle.dragTo(node(page, "text_stats"));
    await page.getByRole("dialog").waitFor();
    await page.getByRole("button", { name: "Connect", exact: true }).click();
    await page.locator(".e.depends").waitFor({ state: "attached" });
    await page.getByRole("button", { name: /^Save/ }).click();
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    const text = onDisk(segue, SAVED);
    assert.match(text, /^name: greet-all {3}# kept\n/);
    const { steps } = await segue.api("POST", "/language/analyze", { text });
    assert.deepEqual(steps.map((one) => one.id), ["echo", "each", "text_stats"]);
    assert.deepEqual(steps[1].bodies[0].steps.map((one) => one.id), ["echo_2"]);
    assert.deepEqual(steps[2].depends_on, ["each"]);
    await page.check();
  });
});
