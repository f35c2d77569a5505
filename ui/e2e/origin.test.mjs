// A page of another origin, in a browser that is signed in: it reads nothing and changes nothing.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { describe, it } from "node:test";
import { launch, openPage } from "./browser.mjs";
import { ASKS, CONFIG, HELLO } from "./fixtures.mjs";
import { run, startSegue } from "./segue.mjs";

/** Serves one page, and notes what it was told. */
async function foreign(t, html) {
  const server = createServer((request, response) => {
    response.writeHead(200, { "Content-Type": "text/html" });
    response.end(html);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

/** Tries everything that a page can try, and says what came of it. */
async function attack(target, waiting) {
  const results = {};
  const attempt = async (name, act) => {
    try {
      results[name] = await act();
    } catch (error) {
      results[name] = `refused: ${error.name}`;
    }
  };
  const read = async (response) => `${response.type} ${response.status} ${(await response.text()).length}`;
  await attempt("read runs", async () => read(await fetch(`${target}/api/v1/runs`, { credentials: "include" })));
  await attempt("read session", async () => read(await fetch(`${target}/api/v1/session`, { credentials: "include" })));
  await attempt("read opaque", async () => read(await fetch(`${target}/api/v1/runs`, { credentials: "include", mode: "no-cors" })));
  await attempt("change as JSON", async () => read(await fetch(`${target}/api/v1/compositions/execute`, { method: "POST", credentials: "include", headers: { "Content-Type": "application/json", "X-Segue-CSRF": "guess" }, body: '{"name":"hello"}' })));
  await attempt("change as text", async () => read(await fetch(`${target}/api/v1/compositions/execute`, { method: "POST", credentials: "include", mode: "no-cors", headers: { "Content-Type": "text/plain" }, body: '{"name":"hello"}' })));
  await attempt("approve as text", async () => read(await fetch(`${target}/api/v1/runs/${waiting}/approve`, { method: "POST", credentials: "include", mode: "no-cors", body: '{"approved":true}' })));
  await attempt("sign out", async () => read(await fetch(`${target}/api/v1/session`, { method: "DELETE", credentials: "include" })));
  await attempt("events", () => new Promise((resolve) => {
    const source = new EventSource(`${target}/api/v1/events`, { withCredentials: true });
    source.onmessage = () => resolve("read");
    source.addEventListener("ready", () => resolve("read"));
    source.onerror = () => (source.close(), resolve("refused"));
  }));
  await attempt("frame", () => new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.src = `${target}/`;
    frame.onload = () => {
      try {
        resolve(frame.contentDocument ? "read" : "refused");
      } catch {
        resolve("refused");
      }
    };
    document.body.append(frame);
  }));
  await attempt("script", () => new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = `${target}/api/v1/runs`;
    script.onload = () => resolve("ran");
    script.onerror = () => resolve("refused");
    document.body.append(script);
  }));
  return results;
}

/** A server that trusts every origin and asks for nothing but a cookie: what the attack would do to it. */
async function careless(t) {
  const changes = [];
  const server = createServer((request, response) => {
    const origin = request.headers.origin ?? "*";
    if (request.method !== "GET" && request.method !== "OPTIONS") changes.push(`${request.method} ${request.url} ${request.headers.cookie ?? "no cookie"}`);
    const type = request.url === "/api/v1/events" ? "text/event-stream" : "text/javascript";
    response.writeHead(200, { "Content-Type": type, "Set-Cookie": "session=1; HttpOnly; SameSite=Strict; Path=/", "Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true", "Access-Control-Allow-Headers": "content-type, x-segue-csrf", "Access-Control-Allow-Methods": "GET, POST, DELETE" });
    response.end(type === "text/event-stream" ? "event: ready\ndata: {}\n\n" : "1");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${server.address().port}`, changes };
}

describe("a foreign origin", () => {
  it("can do all of this to a server that checks nothing", async (t) => {
    const browser = await launch(t);
    const { url, changes } = await careless(t);
    const evil = await foreign(t, "<!doctype html><title>evil</title><body>");
    const page = await browser.newPage();
    await page.goto(url);
    await page.goto(evil);
    await page.evaluate(`globalThis.attack = ${attack}`);
    const results = await page.evaluate((target) => globalThis.attack(target, "x"), url);
    assert.deepEqual([results["read runs"], results["change as JSON"], results["sign out"], results.events, results.script], ["cors 200 1", "cors 200 1", "cors 200 1", "read", "ran"]);
    // The strict cookie goes along, because another port of this host is the same site.
    assert.ok(changes.length >= 4 && changes.every((line) => line.endsWith("session=1")), changes.join("\n"));
  });

  it("reads nothing and changes nothing, although the browser is signed in", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/hello.yaml": HELLO, "compositions/asks.yaml": ASKS } });
    await run(segue, "hello");
    const { run_id: waiting } = await segue.api("POST", "/compositions/execute", { name: "asks" });
    const page = await openPage(t, browser, segue);
    const before = await segue.api("GET", "/runs");
    const evil = await foreign(t, "<!doctype html><title>evil</title><body>");
    // Another port of the same host is the same site: the cookie is sent, so the server itself must refuse.
    const other = await page.context().newPage();
    await other.goto(evil);
    await other.evaluate(`globalThis.attack = ${attack}`);
    const results = await other.evaluate(([target, id]) => globalThis.attack(target, id), [segue.url, waiting]);
    t.diagnostic(JSON.stringify(results));
    for (const name of ["read runs", "read session", "change as JSON", "sign out"]) assert.match(results[name], /^refused/, `${name}: ${results[name]}`);
    for (const name of ["read opaque", "change as text", "approve as text"]) assert.match(results[name], /^(refused|opaque 0 0)/, `${name}: ${results[name]}`);
    for (const name of ["events", "frame", "script"]) assert.equal(results[name], "refused", name);
    // A form that posts and leaves the page.
    await other.evaluate((target) => {
      const form = document.createElement("form");
      form.method = "post";
      form.action = `${target}/api/v1/compositions/execute`;
      form.enctype = "text/plain";
      const field = document.createElement("input");
      field.name = '{"name":"hello","x":"';
      field.value = '"}';
      form.append(field);
      document.body.append(form);
      form.submit();
    }, segue.url);
    await other.waitForLoadState();
    assert.deepEqual((await segue.api("GET", "/runs")).runs.map((one) => [one.run_id, one.status]), before.runs.map((one) => [one.run_id, one.status]));
    // The session of the page still works.
    await page.goto(`${segue.url}/inbox`);
    await page.getByText("publish the draft?").first().waitFor();
    await page.check();
  });

  it("under another name of this machine gets no answer", async (t) => {
    const segue = await startSegue(t, { config: CONFIG });
    const port = new URL(segue.url).port;
    const { request } = await import("node:http");
    const status = await new Promise((resolve, reject) => {
      const call = request({ host: "127.0.0.1", port, path: "/api/v1/session", headers: { Host: "evil.example" } }, (answer) => (answer.resume(), resolve(answer.statusCode)));
      call.on("error", reject).end();
    });
    assert.equal(status, 403);
  });
});
