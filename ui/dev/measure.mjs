// Measures what the page promises, against the mock and `dist/`: frames while a graph of 1,000 steps is panned,
// the time until it is drawn, a loop of 300 items, and how long after an event the page shows it.
import { chromium } from "playwright-core";

const base = process.env.PAGE_URL ?? "http://127.0.0.1:7434";
const { runs } = await (await fetch(`${base}/api/v1/runs?limit=200`)).json();
const find = (name, status) => runs.find((run) => run.name === name && (!status || run.status === status))?.run_id;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });

async function frames(act) {
  await page.evaluate(() => {
    globalThis.frameTimes = [];
    const tick = (time) => {
      globalThis.frameTimes.push(time);
      globalThis.frameLoop = requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  await act();
  return page.evaluate(() => {
    cancelAnimationFrame(globalThis.frameLoop);
    const times = globalThis.frameTimes;
    const gaps = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
    return { fps: Math.round((1000 * gaps.length) / (times.at(-1) - times[0])), p95: Math.round(gaps[Math.floor(gaps.length * 0.95)]) };
  });
}

async function pan() {
  await page.mouse.move(600, 500);
  await page.mouse.down();
  for (let i = 0; i < 90; i++) await page.mouse.move(600 + 250 * Math.sin(i / 8), 500 + 250 * Math.cos(i / 9));
  await page.mouse.up();
}

let began = Date.now();
await page.goto(`${base}/runs/${find("thousand-steps")}`);
await page.waitForSelector(".react-flow__node");
console.log(`1,000 steps drawn after ${Date.now() - began} ms`);
console.log("pan, everything in view:", await frames(pan), "nodes in the page:", await page.locator(".react-flow__node").count());
for (let i = 0; i < 8; i++) await page.keyboard.press("+").then(() => page.waitForTimeout(300));
console.log("pan, near:", await frames(pan), "nodes in the page:", await page.locator(".react-flow__node").count());

began = Date.now();
const loop = find("nightly-export", "success");
await page.goto(`${base}/runs/${loop}?step=tables`);
await page.waitForSelector(".itemrow");
console.log(`loop of 300 items: table after ${Date.now() - began} ms`);
console.log("scrolling the items:", await frames(async () => {
  await page.mouse.move(1200, 600);
  for (let i = 0; i < 60; i++) await page.mouse.wheel(0, 160).then(() => page.waitForTimeout(10));
}));
await page.locator(".itemrow").last().click();
await page.waitForSelector(".itemrow.inner");
console.log(`item opened: ${new URL(page.url()).searchParams.get("step")}`);

await page.goto(base);
await page.waitForSelector(".runrow[data-run]");
await page.waitForTimeout(1000);
const { csrf } = await (await fetch(`${base}/api/v1/session`)).json();
began = Date.now();
const fresh = await (await fetch(`${base}/api/v1/compositions/execute`, { method: "POST", headers: { "Content-Type": "application/json", "X-Segue-CSRF": csrf }, body: JSON.stringify({ name: "hello" }) })).json();
await page.waitForSelector(`[data-run="${fresh.run_id}"]`, { timeout: 5000 });
console.log(`a new run is in the list after ${Date.now() - began} ms (the mock looks every 200 ms)`);
await browser.close();
