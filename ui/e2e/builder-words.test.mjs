// A change in words: a model proposes, and the text changes only by what a person accepts of it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, launch, openPage } from "./browser.mjs";
import { CONFIG, isChecked, node, onDisk, openBuilder, save } from "./builder.mjs";
import { startModel } from "./model.mjs";
import { startSegue } from "./segue.mjs";

const FILE = "compositions/greet.yaml";
const TEXT = `# Greets. Ask Ada before you change it.
name: greet
steps:
  - id: echo
    tool: "builtin:echo"   # two quotes on purpose
    parameters: { text: "Hello" }

  # counts
  - id: text_stats
    tool: "builtin:text_stats"
    parameters: { text: "{{ echo.text }}" }
output: "{{ text_stats.chars }}"   # a number
`;
const PLAN = JSON.stringify({
  reasoning: "The greeting is shortened before it is counted.",
  tools: [
    { name: "echo", dependsOn: null, parameters: { text: "Good day" } },
    { name: "text_truncate", dependsOn: "echo", parameters: { text: "{{echo.text}}", max_chars: 20 } },
    { name: "text_stats", dependsOn: "text_truncate", parameters: { text: "{{text_truncate.text}}" } },
  ],
  executionOrder: ["echo", "text_truncate", "text_stats"],
});

async function proposed(t) {
  const browser = await launch(t);
  const model = await startModel(t, [PLAN]);
  const segue = await startSegue(t, { config: `${CONFIG}llm: { provider: openai, base_url: "${model.url}", model: small-1 }\n`, files: { [FILE]: TEXT } });
  const page = await openPage(t, browser, segue, { width: 1440, height: 900 });
  await openBuilder(page, segue, FILE);
  await page.getByRole("button", { name: "Change by words" }).click();
  await page.getByLabel("What should happen?").fill("Shorten the greeting before it is counted");
  await page.keyboard.press("Control+Enter");
  const review = page.getByRole("region", { name: "Proposal", exact: true });
  await review.getByText("The greeting is shortened before it is counted.", { exact: true }).waitFor();
  await review.getByRole("list", { name: "Changed steps" }).waitFor();
  return { page, segue, model, review };
}

describe("a proposal in the builder", () => {
  it("is taken in part: one step is added, and everything else keeps its bytes", async (t) => {
    const { page, segue, model, review } = await proposed(t);
    // The model gets the text that is to be changed.
    assert.match(JSON.stringify(model.requests[0].body.messages), /two quotes on purpose/);
    assert.deepEqual(await axe(page), []);
    await review.getByRole("button", { name: /^Accept: text_truncate added/ }).click();
    await review.getByRole("listitem").filter({ hasText: "text_truncate" }).first().waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Close" }).last().click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await node(page, "text_truncate").waitFor();
    await save(page);
    const text = onDisk(segue, FILE);
    const added = text.split("\n").filter((line) => !TEXT.split("\n").includes(line));
    assert.ok(added.length > 0 && added.every((line) => /text_truncate|text:|max_chars|parameters|tool|^ {4,}/.test(line)), text);
    for (const line of TEXT.split("\n")) assert.ok(text.split("\n").includes(line), `${line} is gone:\n${text}`);
    await page.check();
  });

  it("is rejected: the text is as it was, to the byte", async (t) => {
    const { page, segue, review } = await proposed(t);
    await review.getByRole("button", { name: "Reject" }).click();
    await review.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Close" }).last().click();
    await isChecked(page);
    assert.equal(await page.getByText(/unsaved change/).count(), 0);
    assert.deepEqual((await segue.api("GET", "/plans")).plans, []);
    assert.equal(onDisk(segue, FILE), TEXT);
    await page.check();
  });
});
