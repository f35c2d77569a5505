// Questions: the inbox answers what a host could not, and everything works with the keyboard alone.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, figure, launch, openPage } from "./browser.mjs";
import { ASKS, AWKWARD, CONFIG, HELLO } from "./fixtures.mjs";
import { mcpHost, mcpOverHttp } from "./mcp-host.mjs";
import { run, startSegue } from "./segue.mjs";

const DROPS = `name: drops
description: Destroys something
steps:
  - { id: before, tool: echo, parameters: { text: ready } }
  - { id: drop, tool: "awkward:drop", parameters: { what: "branch old/feature" }, depends_on: before }
  - { id: after, tool: echo, parameters: { text: "{{ drop.dropped }}" } }
output: { text: "{{ after.text }}" }
`;

describe("a question", () => {
  it("of a host without elicitation is answered in the inbox, and the run goes on", async (t) => {
    const browser = await launch(t);
    const token = "agent-token-agent-token-agent-token-1";
    // The principal may run and not approve: its questions wait for a person.
    const principals = "server: { principals: { agent: { token: \"${AGENT_TOKEN}\", rights: [read, run] } } }\n";
    const segue = await startSegue(t, { config: principals + AWKWARD(), files: { "compositions/drops.yaml": DROPS }, env: { AGENT_TOKEN: token } });
    const page = await openPage(t, browser, segue);
    await page.goto(`${segue.url}/inbox`);
    await page.getByRole("heading", { level: 1, name: "Inbox" }).waitFor();
    const host = await mcpOverHttp(segue, token);
    const answer = await host.call("drops");
    assert.match(JSON.stringify(answer), /waiting|approv/i);
    // The question arrives without a reload, with the tool and its whole arguments, and counts in the title.
    await page.getByText("branch old/feature").first().waitFor();
    await page.getByText(/awkward:/).first().waitFor();
    await page.waitForFunction(() => document.title.startsWith("(1)"));
    assert.deepEqual(await axe(page), []);
    const { questions } = await segue.api("GET", "/questions");
    assert.deepEqual(questions.map((one) => [one.name, one.principal]), [["drops", "agent"]]);
    const asked = performance.now();
    await page.getByRole("button", { name: /^(Allow|Approve)/ }).first().click();
    const view = await waitForStatus(segue, questions[0].run_id, "success");
    figure(t, "answer in the inbox → the run of the host has ended", `${Math.round(performance.now() - asked)} ms`);
    assert.equal(view.output.text, "branch old/feature");
    await page.goto(`${segue.url}/runs/${questions[0].run_id}`);
    await page.locator(".node.s-success", { hasText: "after" }).waitFor();
    await page.check();
  });

  it("of a composition that another process serves over MCP is answered in the inbox", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/asks.yaml": ASKS } });
    const page = await openPage(t, browser, segue);
    await page.goto(`${segue.url}/inbox`);
    const host = mcpHost(segue);
    await host.initialize();
    const answer = await host.call("asks");
    assert.match(JSON.stringify(answer), /waiting|approv|publish the draft/i);
    await page.getByText("publish the draft?").first().waitFor();
    const { questions } = await segue.api("GET", "/questions");
    await page.getByRole("button", { name: /^(Allow|Approve)/ }).first().click();
    const view = await waitForStatus(segue, questions[0].run_id, "success");
    assert.equal(view.output.text, "published");
    await page.check();
  });

  it("that is denied ends the run, and the tool is not called", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: AWKWARD(), files: { "compositions/drops.yaml": DROPS } });
    const { run_id: id } = await segue.api("POST", "/compositions/execute", { name: "drops" });
    const page = await openPage(t, browser, segue);
    await page.goto(`${segue.url}/inbox`);
    await page.getByRole("button", { name: /^Deny/ }).first().click();
    await waitForStatus(segue, id, "denied");
    const { steps } = await segue.api("GET", `/runs/${id}`);
    assert.equal(steps.find((step) => step.id === "drop").output ?? null, null);
    await page.check();
  });
});

describe("the keyboard alone", () => {
  it("finds a run with the palette, changes views, selects a step, and answers a question", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/hello.yaml": HELLO, "compositions/asks.yaml": ASKS } });
    const { run_id: hello } = await run(segue, "hello");
    const { run_id: asks } = await segue.api("POST", "/compositions/execute", { name: "asks" });
    const page = await openPage(t, browser, segue);
    // No mouse from here on.
    const key = async (...keys) => {
      for (const one of keys) await page.keyboard.press(one);
    };
    await key("Control+k");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.type("compositions");
    await key("Enter");
    await page.getByRole("heading", { level: 1, name: "Compositions" }).waitFor();
    await key("g", "r");
    await page.getByRole("heading", { level: 1, name: "Runs" }).waitFor();
    await page.getByRole("row", { name: /hello/ }).waitFor();
    // The newest run is `asks`, the one below it `hello`.
    await key("j", "j", "Enter");
    await page.waitForURL(`**/runs/${hello}**`);
    await page.locator(".node").first().waitFor();
    await key("2");
    await page.waitForURL(/view=timeline/);
    await key("3");
    await page.waitForURL(/view=outline/);
    await page.getByRole("treegrid").waitFor();
    await key("1");
    await page.waitForURL((url) => !/view=(timeline|outline)/.test(url.search));
    await page.locator(".node").first().waitFor();
    await key("ArrowDown");
    await page.waitForURL(/step=/);
    await page.locator(".node.sel").waitFor();
    await key("?");
    await page.getByText("this sheet").waitFor();
    await key("Escape");
    await key("g", "i");
    await page.getByText("publish the draft?").first().waitFor();
    await key("a");
    const focused = await page.evaluate(() => document.activeElement?.textContent ?? "");
    assert.match(focused, /Approve/);
    // Focusing is not answering.
    assert.equal((await segue.api("GET", `/runs/${asks}`)).status, "waiting");
    await key("Enter");
    await waitForStatus(segue, asks, "success");
    await page.check();
  });

  it("reaches every control of each screen with Tab, and shows where it is", async (t) => {
    const browser = await launch(t);
    const segue = await startSegue(t, { config: CONFIG, files: { "compositions/hello.yaml": HELLO } });
    const { run_id: id } = await run(segue, "hello");
    const page = await openPage(t, browser, segue);
    const missing = [];
    for (const path of ["/", `/runs/${id}`, "/inbox", "/compositions", "/edit?file=compositions%2Fhello.yaml&step=stats", "/tools", "/templates", "/plans", "/settings"]) {
      await page.goto(segue.url + path);
      await page.getByRole("heading", { level: 1 }).first().waitFor();
      const stops = [];
      for (let i = 0; i < 60; i++) {
        await page.keyboard.press("Tab");
        const at = await page.evaluate(() => {
          const element = document.activeElement;
          if (!element || element === document.body) return null;
          const style = getComputedStyle(element);
          const ring = style.outlineStyle !== "none" || style.boxShadow !== "none" || !!element.closest(".input, .tree, [data-ring]");
          return { name: `${element.tagName} ${element.getAttribute("aria-label") ?? element.textContent?.slice(0, 40)}`, ring };
        });
        if (!at) break;
        if (!at.ring) missing.push(`${path}: ${at.name}`);
        stops.push(at.name);
      }
      assert.ok(stops.length > 5, `${path}: only ${stops.length} stops`);
    }
    assert.deepEqual([...new Set(missing)], []);
  });
});

async function waitForStatus(segue, id, status) {
  const until = Date.now() + 30_000;
  for (;;) {
    const view = await segue.api("GET", `/runs/${id}`);
    if (view.status === status) return view;
    assert.ok(Date.now() < until, `the run is still ${view.status}, not ${status}: ${JSON.stringify(view).slice(0, 800)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
