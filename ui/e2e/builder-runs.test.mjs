// Runs from the builder: to a step, of one step on cached input, with pinned outputs.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { launch, openPage } from "./browser.mjs";
import { CONFIG, FILE, REPORT, node, onDisk, openBuilder } from "./builder.mjs";
import { startSegue } from "./segue.mjs";

const TESTS = "compositions/report.test.yaml";

describe("runs from the builder", () => {
  it("go to a step, repeat one step, and answer with what is pinned", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { [FILE]: REPORT } });
    const page = await openPage(t, browser, segue, { width: 1440, height: 900, allow: [/404.*report\.test\.yaml/] });
    await openBuilder(page, segue);
    const latest = async () => (await segue.api("GET", "/runs?name=report&limit=1")).runs[0];
    const go = async (step, key) => {
      await node(page, step).click({ position: { x: 40, y: 20 } });
      await page.keyboard.press(key);
      await page.getByRole("dialog").waitFor();
      await page.keyboard.press("Control+Enter");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    };
    // To the second step: the last one is not called.
    await go("second", "t");
    await page.locator(".node.s-success", { hasText: "second" }).waitFor();
    const first = await segue.api("GET", `/runs/${(await latest()).run_id}`);
    assert.deepEqual(first.steps.filter((one) => one.status === "success").map((one) => one.id).sort(), ["first", "second"]);
    // Only the last one: nobody types an input, and nothing else is called.
    await go("last", "y");
    await page.locator(".node.s-success", { hasText: "last" }).waitFor();
    const only = await segue.api("GET", `/runs/${(await latest()).run_id}`);
    assert.notEqual(only.run_id, first.run_id);
    assert.equal(only.steps.find((one) => one.id === "last").output.chars, 5);
    // Pinned, and then the run takes it in place of the tool's answer.
    await node(page, "first").click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("p");
    await page.getByRole("dialog").getByRole("textbox").fill('{"text":"pinned text"}');
    await page.getByRole("dialog").getByRole("button", { name: "Pin" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.match(onDisk(segue, TESTS), /pinned text/);
    await page.keyboard.press("r");
    await page.getByLabel("Outputs").selectOption({ index: 1 });
    await page.keyboard.press("Control+Enter");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.waitForFunction(() => document.querySelectorAll(".node.s-success").length === 3);
    const mocked = await segue.api("GET", `/runs/${(await latest()).run_id}`);
    assert.equal(mocked.steps.find((one) => one.id === "last").output.chars, "pinned text".length);
    await page.check();
  });
});
