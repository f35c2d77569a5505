// The graph of the builder: what cannot be undone, groups that keys close, the same picture for the same file, the part in
// view after a reload, and ghosts until the text is saved.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, launch, openPage } from "./browser.mjs";
import { CONFIG, isChecked, node, openBuilder, save } from "./builder.mjs";
import { startSegue } from "./segue.mjs";

const FILE = "compositions/notes.yaml";
const TEXT = `name: notes
input: { type: object, properties: { names: { type: array, items: { type: string }, default: [a, b] } } }
steps:
  - id: each
    loop:
      over: "{{ input.names }}"
      steps:
        - { id: say, tool: echo, parameters: { text: "{{ item }}" } }
  - { id: send, tool: http_request, parameters: { url: "http://127.0.0.1:1/", method: POST, body: "{{ each | length }}" } }
  - { id: last, tool: echo, parameters: { text: done }, depends_on: send }
`;

const places = (page) => page.evaluate(() => [...document.querySelectorAll(".react-flow__node")].map((one) => `${one.dataset.id} ${one.style.transform}`).sort());
const viewport = (page) => page.locator(".react-flow__viewport").first().evaluate((one) => one.style.transform);

describe("the graph of the builder", () => {
  it("shows what cannot be undone, and names it in the footer", async (t) => {
    const { page } = await begin(t);
    await node(page, "send").getByText("no rollback").waitFor();
    await page.locator(".b-foot").getByText(/1 step cannot be rolled back/).waitFor();
    await node(page, "last").click({ position: { x: 40, y: 20 } });
    await page.locator(".b-foot").getByRole("button", { name: "send" }).click();
    await page.getByRole("region", { name: "Step send" }).waitFor();
    await page.check();
  });

  it("closes and opens a loop by key, and keeps that and the part in view for this file", async (t) => {
    const { segue, page } = await begin(t);
    const first = await places(page);
    await node(page, "each").click({ position: { x: 60, y: 12 } });
    await page.keyboard.press("o");
    await node(page, "say").waitFor({ state: "detached" });
    for (let i = 0; i < 2; i++) await page.keyboard.press("-");
    await page.waitForTimeout(600);
    const seen = await viewport(page);
    await openBuilder(page, segue, FILE);
    await node(page, "each").waitFor();
    assert.equal(await node(page, "say").count(), 0);
    assert.equal(await viewport(page), seen);
    await page.keyboard.press("Shift+F6");
    await node(page, "each").click({ position: { x: 40, y: 12 } });
    await page.keyboard.press("o");
    await node(page, "say").waitFor();
    // The same file gives the same picture.
    assert.deepEqual(await places(page), first);
    assert.deepEqual(await axe(page), []);
    await page.check();
  });

  it("keeps a ghost of a removed step until the text is saved, in text and graph one history", async (t) => {
    const { page } = await begin(t);
    await node(page, "last").click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("Delete");
    await page.locator(".node.ghost", { hasText: "last" }).waitFor();
    // Typed after the action of the graph, undone before it.
    await page.locator(".b-editor .cm-content").click();
    await page.keyboard.press("Control+End");
    await page.keyboard.type("# note");
    await isChecked(page);
    await page.keyboard.press("Control+z");
    await page.locator(".node.ghost", { hasText: "last" }).waitFor();
    await page.keyboard.press("Control+z");
    await page.locator(".node.ghost").waitFor({ state: "detached" });
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    await page.keyboard.press("Control+Shift+Z");
    await page.locator(".node.ghost", { hasText: "last" }).waitFor();
    await isChecked(page);
    await save(page);
    await page.locator(".node.ghost").waitFor({ state: "detached" });
    await page.check();
  });
});

async function begin(t) {
  const browser = await launch(t);
  const segue = await startSegue(t, { config: CONFIG, files: { [FILE]: TEXT } });
  const page = await openPage(t, browser, segue, { width: 1440, height: 900 });
  await openBuilder(page, segue, FILE);
  await node(page, "each").waitFor();
  return { segue, page };
}
