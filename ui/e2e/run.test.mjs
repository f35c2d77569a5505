// The screen of a run, and calls of a tool: re-run inside a loop, zoom, cancel.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { launch, openPage } from "./browser.mjs";
import { CONFIG, loop, slow } from "./fixtures.mjs";
import { run, startSegue } from "./segue.mjs";

describe("a run", () => {
  it("is re-run from the loop that holds the selected step", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/loop.yaml": loop(3) } });
    const { run_id: id } = await run(segue, "loop");
    const page = await openPage(t, browser, segue);
    await page.goto(`${segue.url}/runs/${id}?step=${encodeURIComponent("each[1]/say")}`);
    await page.getByRole("button", { name: "Re-run from each" }).click();
    await page.getByText("which is inside each: all of it is called again").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Re-run from each" }).click();
    await page.waitForURL((url) => url.pathname.startsWith("/runs/") && !url.pathname.includes(id));
    await page.getByText("Success").first().waitFor();
    const { runs } = await segue.api("GET", "/runs");
    assert.deepEqual(runs.map((one) => one.status), ["success", "success"]);
    await page.check();
  });

  it("has a timeline that zooms", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/slow.yaml": slow("slow", 4, 100) } });
    const { run_id: id } = await run(segue, "slow");
    const page = await openPage(t, browser, segue);
    await page.goto(`${segue.url}/runs/${id}?view=timeline`);
    const zoom = page.getByRole("group", { name: "Zoom of the timeline" });
    const bars = page.locator(".tl .bar2");
    await zoom.getByText("100 %").waitFor();
    await bars.nth(3).waitFor();
    const all = await bars.count();
    await page.keyboard.press("+");
    await zoom.getByText("150 %").waitFor();
    // At the left edge, so that the last steps are not shown any more.
    const box = await page.locator(".tl-lines").boundingBox();
    await page.mouse.move(box.x + 1, box.y + 60);
    await page.keyboard.down("Control");
    for (let i = 0; i < 4; i++) await page.mouse.wheel(0, -100);
    await page.keyboard.up("Control");
    await zoom.getByText("759 %").waitFor();
    assert.ok((await bars.count()) < all, "bars outside are not drawn");
    await zoom.getByRole("button", { name: "Show everything" }).click();
    await zoom.getByText("100 %").waitFor();
    assert.equal(await bars.count(), all);
    await page.check();
  });
});

describe("a call of a tool", () => {
  it("is cancelled, and no other call of the same tool", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG });
    const page = await openPage(t, browser, segue);
    const other = segue.api("POST", "/tools/sleep/call", { arguments: { ms: 60_000 } });
    other.catch(() => {});
    await page.goto(`${segue.url}/tools?tool=${encodeURIComponent("builtin:sleep")}`);
    await page.getByLabel(/^ms/).fill("60000");
    await page.getByRole("button", { name: /^Call/ }).click();
    await page.getByRole("button", { name: /^Cancel/ }).click();
    await page.getByText(/Cancelled/i).first().waitFor();
    const { runs } = await segue.api("GET", "/runs");
    assert.deepEqual(runs.map((one) => one.status), ["cancelled", "running"]);
    await page.check();
  });
});
