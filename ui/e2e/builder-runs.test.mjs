// Runs from the builder, and outputs that its author pins.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { launch, openPage } from "./browser.mjs";
import { CONFIG, FILE, REPORT, node, onDisk, openBuilder } from "./builder.mjs";
import { startSegue } from "./segue.mjs";

const TESTS = "compositions/report.test.yaml";

describe("runs from the builder", () => {
  it("show their states on the graph, and an output can be pinned", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { [FILE]: REPORT } });
    const page = await openPage(t, browser, segue, { width: 1440, height: 900, allow: [/404.*report\.test\.yaml/] });
    await openBuilder(page, segue);
    const latest = async () => (await segue.api("GET", "/runs?name=report&limit=1")).runs[0];
    await page.keyboard.press("r");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Control+Enter");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.waitForFunction(() => document.querySelectorAll(".node.s-success").length === 3);
    const run = await segue.api("GET", `/runs/${(await latest()).run_id}`);
    assert.equal(run.steps.find((one) => one.id === "last").output.chars, 5);
    // An output is kept in the test file beside the composition.
    await node(page, "first").click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("p");
    await page.getByRole("dialog").getByRole("textbox").fill('{"text":"pinned text"}');
    await page.getByRole("dialog").getByRole("button", { name: "Pin" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.match(onDisk(segue, TESTS), /pinned text/);
    await page.check();
  });
});
