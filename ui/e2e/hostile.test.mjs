// Texts of tools are shown as what they are: nothing of them runs, reorders the page or freezes it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, bound, figure, launch, openPage } from "./browser.mjs";
import { AWKWARD } from "./fixtures.mjs";
import { run, startSegue } from "./segue.mjs";

const HTML = "<img src=x onerror=globalThis.pwned=9><script>globalThis.pwned=8</script>";
const HOSTILE = `name: hostile
description: ${JSON.stringify(`${HTML} \u202Ereversed`)}
steps:
  - { id: texts, tool: "awkward:hostile", parameters: { ${JSON.stringify(HTML)}: ${JSON.stringify("\u202Egnp.exe \u0007 " + HTML)} } }
  - { id: fails, tool: "awkward:fails", parameters: {}, on_failure: { action: continue } }
  - { id: big, tool: "awkward:big", parameters: { n: 10000000 } }
`;
const LIMITS = "limits: { mcp_message_bytes_max: 67108864 }\n";

/** Nothing of a tool's text became an element, and nothing of it ran. */
async function isHarmless(page) {
  const found = await page.evaluate(() => ({
    pwned: globalThis.pwned ?? null,
    scripts: [...document.querySelectorAll("script")].filter((one) => !one.src).length,
    images: document.querySelectorAll("img").length,
    raw: [...document.querySelectorAll("main *")].filter((one) => one.children.length === 0 && /[\u202A-\u202E\u2066-\u2069\u0007\u001b]/.test(one.textContent ?? "")).map((one) => one.outerHTML.slice(0, 200)),
    title: /[\u202A-\u202E\u0000-\u001f]/.test(document.title),
  }));
  assert.deepEqual(found, { pwned: null, scripts: 0, images: 0, raw: [], title: false });
}

describe("hostile texts", () => {
  it("in names, arguments, values and errors are shown as codes", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: LIMITS + AWKWARD(), files: { "compositions/hostile.yaml": HOSTILE } });
    const { run_id: id } = await run(segue, "hostile");
    const page = await openPage(t, browser, segue);
    for (const path of ["/", `/?q=${encodeURIComponent(HTML)}`, `/runs/${id}`, `/runs/${id}?step=texts`, `/runs/${id}?step=fails`, `/runs/${id}?view=outline`, `/runs/${id}?view=timeline`, "/compositions", "/compositions/hostile", "/edit?file=compositions%2Fhostile.yaml&step=texts", "/edit", "/tools", "/tools?tool=awkward%3Ahostile", `/runs/${encodeURIComponent(HTML)}`]) {
      await page.goto(segue.url + path);
      await page.getByRole("heading", { level: 1 }).first().waitFor();
      await page.waitForTimeout(300);
      await isHarmless(page);
    }
    await page.goto(`${segue.url}/runs/${id}?step=texts`);
    await page.getByText("U+202E").first().waitFor();
    page.seen.errors = page.seen.errors.filter((text) => !/404/.test(text));
    await page.check();
  });

  it("of 10 MB are cut, and the page stays usable", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: LIMITS + AWKWARD(), files: { "compositions/hostile.yaml": HOSTILE } });
    const { run_id: id } = await run(segue, "hostile");
    const page = await openPage(t, browser, segue);
    const from = performance.now();
    await page.goto(`${segue.url}/runs/${id}?step=big`);
    await page.getByText(/(9\.5|9\.54|10\.0) MB/).first().waitFor();
    const took = Math.round(performance.now() - from);
    figure(t, "a step with a text of 10 MB opened", `${took} ms`);
    const length = await page.evaluate(() => document.body.textContent?.length ?? 0);
    assert.ok(length < 200_000, `${length} characters are in the document`);
    bound(took < 5000, `${took} ms`);
    assert.deepEqual(await axe(page), []);
    await page.check();
  });

  it("as names of tools neither run nor hide", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: AWKWARD(["--bad-names"]), files: { "compositions/one.yaml": "name: one\nsteps: [ { id: a, tool: echo, parameters: { x: 1 } } ]\n" } });
    const page = await openPage(t, browser, segue);
    await page.goto(`${segue.url}/tools`);
    await page.getByText("awkward").first().waitFor();
    await page.waitForTimeout(300);
    await isHarmless(page);
    await page.check();
  });
});
