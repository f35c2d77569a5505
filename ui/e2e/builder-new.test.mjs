// What a new composition begins with, and files that cannot be served.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, launch, openPage } from "./browser.mjs";
import { CONFIG, isChecked, node, onDisk } from "./builder.mjs";
import { HELLO } from "./fixtures.mjs";
import { run, startSegue } from "./segue.mjs";

const BROKEN = "name: broken\nsteps:\n  - { id: a, tool: ecko, parameters: {} }\n";

async function begin(t, files) {
  const browser = await launch(t);
  const segue = await startSegue(t, { config: CONFIG, files });
  return { segue, page: await openPage(t, browser, segue, { width: 1440, height: 900 }) };
}

describe("a new composition", () => {
  it("begins with a template, with the text of a run, or with the file of a composition", async (t) => {
    const { segue, page } = await begin(t, { "compositions/hello.yaml": HELLO });
    const { run_id: id } = await run(segue, "hello");
    const { templates } = await segue.api("GET", "/compositions/templates");
    for (const from of [`template:${templates[0].id}`, `run:${id}`]) {
      await page.goto(`${segue.url}/edit?from=${encodeURIComponent(from)}`);
      await page.locator(".node").first().waitFor();
      await isChecked(page);
      // Nothing is written before it is saved.
      await page.getByText(/unsaved change/).waitFor();
    }
    await page.goto(`${segue.url}/compositions/hello`);
    await page.getByRole("heading", { level: 1, name: "hello" }).waitFor();
    await page.keyboard.press("e");
    await page.waitForURL(/file=compositions%2Fhello\.yaml/);
    await node(page, "greeting").waitFor();
    // The states of its last run are on the graph.
    await page.locator(".node.s-success", { hasText: "greeting" }).waitFor();
    assert.equal(await page.getByText(/unsaved change/).count(), 0);
    await page.check();
  });

  it("begins with a recording: the text that was recorded, and the outputs as values", async (t) => {
    const { segue, page } = await begin(t, { "compositions/hello.yaml": HELLO });
    const { code, err } = await segue.cli(["run", "hello", "-i", "name=Ada", "--record", "compositions/hello.test.yaml"]).done;
    assert.equal(code, 0, err);
    await page.goto(`${segue.url}/edit`);
    await page.getByRole("link", { name: /hello\.test\.yaml/ }).click();
    await node(page, "stats").waitFor();
    await isChecked(page);
    await page.getByText(/unsaved change/).waitFor();
    await node(page, "stats").click({ position: { x: 40, y: 20 } });
    const pane = page.getByRole("region", { name: "Step stats" });
    await pane.getByText("pinned").first().waitFor();
    await pane.getByRole("radio", { name: "Values" }).click();
    await pane.getByRole("treeitem", { name: /Hello, Ada!/ }).waitFor();
    assert.deepEqual(await axe(page), []);
    // The input of the recording need not be typed again.
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: /^Run\b/ }).first().click();
    await page.getByRole("dialog").waitFor();
    assert.equal(await page.getByRole("dialog").getByRole("textbox").first().inputValue(), "Ada");
    await page.check();
  });

  it("is asked for in words, and rejecting leaves the text as it was", async (t) => {
    const { segue, page } = await begin(t, { "compositions/hello.yaml": HELLO });
    await page.goto(`${segue.url}/edit?file=compositions%2Fhello.yaml`);
    await isChecked(page);
    await page.getByRole("button", { name: "Change by words" }).click();
    await page.getByRole("dialog").getByRole("textbox").waitFor();
    assert.deepEqual(await axe(page), []);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.equal(await page.getByText(/unsaved change/).count(), 0);
    assert.equal(onDisk(segue, "compositions/hello.yaml"), HELLO);
    await page.check();
  });
});

describe("a file that cannot be served", () => {
  it("is opened from the list, mended by key and saved", async (t) => {
    const { segue, page } = await begin(t, { "compositions/hello.yaml": HELLO, "compositions/broken.yaml": BROKEN });
    await page.goto(`${segue.url}/compositions`);
    await page.getByRole("link", { name: "Open in the builder" }).click();
    await page.locator(".node .corner", { hasText: "1 error" }).waitFor();
    await page.keyboard.press("Control+.");
    await page.locator(".node .corner").waitFor({ state: "detached" });
    await page.keyboard.press("Control+s");
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    assert.equal(onDisk(segue, "compositions/broken.yaml"), BROKEN.replace("ecko", "echo"));
    await page.check();
  });
});
