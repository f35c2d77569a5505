// Runs from the builder: of the whole text, to a step, of one step on the values of a run, and with pinned outputs.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, launch, openPage } from "./browser.mjs";
import { CONFIG, FILE, REPORT, node, onDisk, openBuilder } from "./builder.mjs";
import { startSegue } from "./segue.mjs";

const TESTS = "compositions/report.test.yaml";

async function begin(t) {
  const browser = await launch(t);
  const segue = await startSegue(t, { config: CONFIG, files: { [FILE]: REPORT } });
  const page = await openPage(t, browser, segue, { width: 1440, height: 900, allow: [/404.*report\.test\.yaml/] });
  await openBuilder(page, segue);
  /** Selects a step, presses a key, and runs what the dialog offers; gives the new run when it is over. */
  const go = async (step, key, before = async () => {}) => {
    const old = (await segue.api("GET", "/runs?name=report&limit=1")).runs[0]?.run_id;
    if (step) await node(page, step).click({ position: { x: 40, y: 20 } });
    await page.keyboard.press(key);
    await page.getByRole("dialog").waitFor();
    await before();
    await page.keyboard.press("Control+Enter");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    for (;;) {
      const [run] = (await segue.api("GET", "/runs?name=report&limit=1")).runs;
      if (run && run.run_id !== old && run.status !== "running") return segue.api("GET", `/runs/${run.run_id}`);
      await page.waitForTimeout(50);
    }
  };
  const pin = async (step, output) => {
    await node(page, step).click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("p");
    await page.getByRole("dialog").getByRole("textbox").fill(output);
    await page.getByRole("dialog").getByRole("button", { name: "Pin" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  return { segue, page, go, pin };
}
const statuses = (run) => Object.fromEntries(run.steps.map((one) => [one.id, one.origin ?? one.status]));
const output = (run, step) => run.steps.find((one) => one.id === step).output;

describe("runs from the builder", () => {
  it("go to a step, and repeat one step on the values that it had", async (t) => {
    const { segue, page, go } = await begin(t);
    // Before there is a run, one step alone has no values.
    await node(page, "last").click({ position: { x: 40, y: 20 } });
    assert.match(await page.getByRole("button", { name: "Run only this step" }).getAttribute("title"), /there is no run/);
    const first = await go("second", "t", async () => {
      const list = page.getByRole("list", { name: "Steps of this run" });
      assert.deepEqual(await list.locator("b").allTextContents(), ["first", "second"]);
      assert.deepEqual(await axe(page), []);
    });
    assert.deepEqual([first.part, statuses(first)], [{ until: "second" }, { first: "success", second: "success", last: "left_out" }]);
    await page.locator(".node.s-success", { hasText: "second" }).waitFor();
    await page.locator(".node.s-skipped", { hasText: "Left out" }).waitFor();
    // Only the last one: nobody types an input, and nothing else is called.
    const only = await go("last", "y", async () => assert.deepEqual(await axe(page), []));
    assert.deepEqual([only.part, statuses(only)], [{ only: "last", run: first.run_id }, { first: "reused", second: "reused", last: "success" }]);
    assert.equal(output(only, "last").chars, 5);
    await page.locator(".node.s-success", { hasText: "last" }).waitFor();
    // The screen of the run says what it is.
    await page.goto(`${segue.url}/runs/${only.run_id}?step=first`);
    await page.getByText("only last").waitFor();
    await page.getByRole("link", { name: "Show it there" }).waitFor();
    assert.deepEqual(await axe(page), []);
    await page.check();
  });

  it("take pinned outputs in place of calls, which a test file keeps", async (t) => {
    const { segue, page, go, pin } = await begin(t);
    const whole = await go(null, "r");
    assert.deepEqual([whole.part, output(whole, "last").chars], [undefined, 5]);
    await pin("first", '{"text":"pinned text"}');
    assert.match(onDisk(segue, TESTS), /pinned text/);
    await page.locator(".node", { hasText: "first" }).getByRole("img", { name: "pinned" }).waitFor();
    // A run of the whole composition takes none unless it is asked to.
    const plain = await go(null, "r");
    assert.equal(output(plain, "last").chars, 5);
    const mocked = await go(null, "r", () => page.getByRole("checkbox", { name: "first" }).check());
    assert.deepEqual([mocked.part, statuses(mocked), output(mocked, "last").chars], [{ pinned: ["first"] }, { first: "pinned", second: "success", last: "success" }, "pinned text".length]);
    // To a step they are taken unless it is asked not to.
    const to = await go("second", "t");
    assert.deepEqual(to.part, { until: "second", pinned: ["first"] });
    const called = await go("second", "t", () => page.getByRole("checkbox", { name: "first" }).uncheck());
    assert.deepEqual([called.part, output(called, "second").text], [{ until: "second" }, "hello"]);
    assert.deepEqual(await axe(page), []);
    await page.check();
  });
});
