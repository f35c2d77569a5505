// Chromium, and pages that watch what they load, log and refuse.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const axeText = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Whether the long form runs, on a machine that does nothing else. */
export const LONG = process.env.SEGUE_E2E_LONG === "1";

/** Holds a time or a frame rate to its bound in the long form. The short form only prints figures: a busy machine must not fail it. */
export function bound(isWithin, message) {
  if (LONG) assert.ok(isWithin, message);
}

/** Each launch has a new profile. One browser serves the tests of a file. */
export async function launch(t) {
  const browser = await chromium.launch({ executablePath: process.env.SEGUE_CHROMIUM ?? "/usr/bin/chromium", args: ARGS });
  t.after(() => browser.close());
  return browser;
}

/** Collects what must not happen on any page. */
function watch(page, origin) {
  const seen = { errors: [], foreign: [], refused: [], requests: 0 };
  page.on("console", (message) => {
    const text = message.text();
    if (/Content Security Policy|Content-Security-Policy/.test(text)) seen.refused.push(text);
    if (message.type() === "error") seen.errors.push(`${text} ${message.location().url ?? ""}`);
  });
  page.on("pageerror", (error) => seen.errors.push(String(error.stack ?? error)));
  page.on("request", (request) => {
    seen.requests++;
    const url = request.url();
    if (!url.startsWith(`${origin}/`) && !url.startsWith("data:") && !url.startsWith("blob:")) seen.foreign.push(url);
  });
  return seen;
}

/** A signed-in page. `session` of an earlier page spares a second link, which would not work. */
export async function openPage(t, browser, segue, { theme = "light", session, width = 1280, height = 800, allow = [] } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, storageState: session, reducedMotion: "reduce" });
  context.setDefaultTimeout(20_000);
  t.after(() => context.close());
  await context.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  const page = await context.newPage();
  const seen = watch(page, segue.url);
  if (!session) {
    await page.goto(segue.link);
    await page.waitForURL(`${segue.url}/`);
  } else {
    await page.goto(`${segue.url}/`);
  }
  await page.getByRole("heading", { level: 1, name: "Runs" }).waitFor();
  // Before sign-in the page asks for its session once, and the browser logs the 401.
  seen.errors = seen.errors.filter((text) => !/401.*\/api\/v1\/session/.test(text));
  return Object.assign(page, { seen, origin: segue.url, state: () => context.storageState(), check: () => check(page, seen, allow) });
}

/** Nothing was logged as an error, refused by the policy, or asked of another origin. */
async function check(page, seen, allow) {
  const violations = await page.evaluate(() => globalThis.violations);
  const errors = seen.errors.filter((text) => !allow.some((pattern) => pattern.test(text)));
  assert.deepEqual({ errors, refused: [...seen.refused, ...violations], foreign: seen.foreign }, { errors: [], refused: [], foreign: [] });
}

/** Serious and critical findings of axe, as short texts. */
export async function axe(page) {
  // Through the debugger: the policy of the page does not concern it.
  await page.evaluate(axeText);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations
    .filter((one) => one.impact === "serious" || one.impact === "critical")
    .map((one) => `${one.impact} ${one.id}: ${one.nodes.map((node) => `${node.target.join(" ")} (${node.failureSummary?.split("\n")[1]?.trim()})`).slice(0, 3).join(" | ")}`);
}

/** Frames a second while `act` runs, counted by requestAnimationFrame. */
export async function frames(page, act) {
  await page.evaluate(() => {
    globalThis.frameTimes = [];
    globalThis.counting = true;
    const count = (now) => {
      globalThis.frameTimes.push(now);
      if (globalThis.counting) requestAnimationFrame(count);
    };
    requestAnimationFrame(count);
  });
  await act();
  const times = await page.evaluate(() => {
    globalThis.counting = false;
    return globalThis.frameTimes;
  });
  const gaps = times.slice(1).map((time, i) => time - times[i]);
  const seconds = (times.at(-1) - times[0]) / 1000;
  return { fps: gaps.length / seconds, worst: Math.max(...gaps), seconds };
}

/** The best of up to three tries: other work on the machine takes frames, too. */
export async function bestFrames(page, least, act) {
  let best = { fps: 0 };
  for (let i = 0; i < 3 && best.fps < least; i++) {
    const now = await frames(page, act);
    if (now.fps > best.fps) best = now;
  }
  return best;
}

/** A figure that the manual quotes. */
export function figure(t, name, value) {
  t.diagnostic(`figure: ${name}: ${value}`);
}
