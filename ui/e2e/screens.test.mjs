// Every screen: it opens, logs no error, breaks no policy, asks no other origin, and axe has no serious finding.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { axe, bound, figure, launch, openPage } from "./browser.mjs";
import { ASKS, CONFIG, FAILS, HELLO, loop } from "./fixtures.mjs";
import { ending, run, startSegue } from "./segue.mjs";

/** The heading of a run: the end of its id. */
const ID = /[0-9a-f]{6}/;

const SCREENS = (ids) => [
  { name: "Runs", path: "/", heading: "Runs", shows: "hello" },
  { name: "Runs, failed only", path: "/?failed=true", heading: "Runs", shows: "fails" },
  { name: "Runs, none fits", path: "/?q=nothing-has-this-text", heading: "Runs", shows: "No run fits" },
  { name: "A run, graph", path: `/runs/${ids.hello}`, heading: ID, shows: "greeting" },
  { name: "A run, step", path: `/runs/${ids.hello}?step=greeting`, heading: ID, shows: "Hello, world!" },
  { name: "A run, timeline", path: `/runs/${ids.hello}?view=timeline`, heading: ID, shows: "greeting" },
  { name: "A run, outline", path: `/runs/${ids.hello}?view=outline`, heading: ID, shows: "greeting" },
  { name: "A failed run", path: `/runs/${ids.fails}?step=second`, heading: ID, shows: "the printer is on fire" },
  { name: "A loop", path: `/runs/${ids.loop}?step=each`, heading: ID, shows: "each" },
  { name: "Compare", path: `/compare?left=${ids.hello}&right=${ids.again}`, heading: /Compare/, shows: "greeting" },
  { name: "Inbox", path: "/inbox", heading: "Inbox", shows: "publish the draft?" },
  { name: "Compositions", path: "/compositions", heading: "Compositions", shows: "hello" },
  { name: "A composition", path: "/compositions/hello", heading: /hello/, shows: "greeting" },
  { name: "The builder", path: "/edit?file=compositions%2Fhello.yaml&step=stats", heading: /hello/, shows: "No findings" },
  { name: "New composition", path: "/edit", heading: "New composition", shows: "An empty composition" },
  { name: "Tools", path: "/tools", heading: "Tools", shows: "files_read" },
  { name: "Templates", path: "/templates", heading: "Templates", shows: "never used" },
  { name: "Template, plan", path: "/templates?pane=plan", heading: "Templates", shows: "Rollback" },
  { name: "Plan from words", path: "/plans", heading: "Plan from words", shows: "Say what should happen" },
  { name: "Settings and doctor", path: "/settings", heading: "Settings and doctor", shows: "Sign out" },
  { name: "Not found", path: "/nothing/here", heading: /.+/, shows: "" },
];

describe("every screen", () => {
  let segue, session, ids, browser;
  const suite = ending();
  after(() => suite.end());
  before(async () => {
    browser = await launch(suite);
    segue = await startSegue(suite, { config: CONFIG, files: { "compositions/hello.yaml": HELLO, "compositions/fails.yaml": FAILS, "compositions/asks.yaml": ASKS, "compositions/loop.yaml": loop(12) } });
    const [hello, again, fails, looped] = [await run(segue, "hello"), await run(segue, "hello", ["-i", "name=Ada"]), await run(segue, "fails"), await run(segue, "loop")];
    await segue.api("POST", "/compositions/execute", { name: "asks" });
    ids = { hello: hello.run_id, again: again.run_id, fails: fails.run_id, loop: looped.run_id };
    const page = await openPage(suite, browser, segue);
    session = await page.state();
  });

  it("signs in by the link, and takes the code out of the address", async (t) => {
    const page = await openPage(t, browser, segue, { session });
    assert.equal(new URL(page.url()).hash, "");
    const cookies = await page.context().cookies();
    const cookie = cookies.find((one) => one.name.startsWith("segue_session"));
    assert.deepEqual([cookie?.httpOnly, cookie?.sameSite], [true, "Strict"]);
    assert.equal(await page.evaluate(() => document.cookie), "");
    assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((key) => /token|session|csrf/i.test(key))), ["segue-csrf"]);
    await page.check();
  });

  for (const theme of ["light", "dark"])
    it(`opens in ${theme}, without an error and without a serious finding of axe`, async (t) => {
      const page = await openPage(t, browser, segue, { theme, session });
      const bad = [];
      const screens = SCREENS(ids);
      for (const { name, path, heading, shows } of screens) {
        await page.goto(segue.url + path);
        try {
          await page.getByRole("heading", { level: 1, name: heading }).first().waitFor({ timeout: 6_000 });
          if (shows) await page.getByText(shows).first().waitFor({ state: "attached", timeout: 6_000 });
          assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
          bad.push(...(await axe(page)).map((text) => `${name}: ${text}`));
          await page.check();
        } catch (error) {
          bad.push(`${name}: ${String(error.message).slice(0, 1500)}`);
          Object.assign(page.seen, { errors: [], refused: [], foreign: [] });
        }
      }
      figure(t, `axe, ${theme}: screens, serious findings`, `${screens.length}, ${bad.length}`);
      assert.equal(bad.length, 0, bad.join("\n"));
    });

  it("opens palette and sheet without a serious finding", async (t) => {
    const page = await openPage(t, browser, segue, { session });
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").waitFor();
    assert.deepEqual(await axe(page), []);
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.getByText("this sheet").waitFor();
    assert.deepEqual(await axe(page), []);
    await page.check();
  });

  it("opens a run, and draws its graph", async (t) => {
    const page = await openPage(t, browser, segue, { session });
    const times = [];
    for (let i = 0; i < 3; i++) {
      const from = performance.now();
      await page.goto(`${segue.url}/runs/${ids.hello}`);
      await page.locator(".node").first().waitFor();
      times.push(Math.round(performance.now() - from));
    }
    figure(t, "a run opened, first node drawn (ms, three times)", times.join(", "));
    bound(Math.min(...times) < 3000, `${times}`);
  });

  it("signs out: the page is closed and the cookie gone", async (t) => {
    const fresh = await startSegue(t, { config: CONFIG });
    const page = await openPage(t, browser, fresh, { allow: [/401/] });
    await page.goto(`${fresh.url}/settings`);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in to Segue" }).waitFor();
    assert.deepEqual((await page.context().cookies()).filter((one) => one.value !== ""), []);
    await page.getByLabel("Token").fill("segue_wrong");
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("alert").waitFor();
    await page.getByLabel("Token").fill(fresh.token);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("navigation").waitFor();
  });
});
