// Plan from words: a model proposes, a person accepts or rejects, and only then something runs.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, launch, openPage } from "./browser.mjs";
import { CONFIG } from "./fixtures.mjs";
import { startModel } from "./model.mjs";
import { startSegue } from "./segue.mjs";

const WORDS = "Greet Ada, and count the letters";
const plan = (text) =>
  JSON.stringify({
    reasoning: "First the greeting, then its letters.",
    tools: [
      { name: "echo", dependsOn: null, parameters: { text } },
      { name: "text_stats", dependsOn: "echo", parameters: { text: "{{echo.text}}" } },
    ],
    executionOrder: ["echo", "text_stats"],
  });

async function asked(t, answers) {
  const browser = await launch(t);
  const model = await startModel(t, answers);
  const segue = await startSegue(t, { config: `${CONFIG}llm: { provider: openai, base_url: "${model.url}", model: small-1 }\n` });
  const page = await openPage(t, browser, segue);
  await page.goto(`${segue.url}/plans`);
  await page.getByLabel("What should happen?").fill(WORDS);
  await page.getByRole("button", { name: /^Propose a plan/ }).click();
  const proposal = page.getByRole("region", { name: "Proposed plan" });
  await proposal.getByRole("heading", { name: WORDS }).waitFor();
  const runs = async () => (await segue.api("GET", "/runs")).runs;
  return { page, segue, model, proposal, runs };
}

describe("a plan from words", () => {
  it("runs when it is accepted, and not before", async (t) => {
    // The model's first answer names a tool that does not exist; Segue tells it so.
    const { page, segue, model, proposal, runs } = await asked(t, [plan("x").replaceAll("text_stats", "count_letters"), plan("Hello, Ada!")]);
    assert.deepEqual(model.requests.map((one) => one.path), ["/v1/chat/completions", "/v1/chat/completions"]);
    assert.equal(model.requests[0].body.model, "small-1");
    assert.match(JSON.stringify(model.requests[0].body.messages), /Greet Ada/);
    assert.match(JSON.stringify(model.requests[1].body.messages), /count_letters/);
    await proposal.getByText("A proposal: nothing was called").waitFor();
    await proposal.locator(".node").nth(1).waitFor();
    assert.deepEqual(await runs(), []);
    assert.deepEqual(await axe(page), []);
    await proposal.getByRole("button", { name: "Accept and run" }).click();
    await page.waitForURL(/\/runs\/[0-9a-f-]+/);
    await page.getByText("Success").first().waitFor();
    const [run] = await runs();
    assert.ok(page.url().includes(run.run_id), page.url());
    const view = await segue.api("GET", `/runs/${run.run_id}`);
    assert.deepEqual([view.status, view.steps.map((step) => step.output.text ?? step.output.chars)], ["success", ["Hello, Ada!", 11]]);
    assert.equal(model.requests.length, 2, "a run asks no model");
    await page.check();
  });

  it("is deleted when it is rejected", async (t) => {
    const { page, segue, proposal, runs } = await asked(t, [plan("Hello, Ada!")]);
    await proposal.getByRole("button", { name: "Reject" }).click();
    await proposal.waitFor({ state: "detached" });
    assert.deepEqual((await segue.api("GET", "/plans")).plans, []);
    assert.deepEqual(await runs(), []);
    await page.check();
  });
});
