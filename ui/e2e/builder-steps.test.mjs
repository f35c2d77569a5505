// What is done with steps beside adding and moving them: extracted, changed in kind, connected by a field of a value; and
// what the text says about the word under the pointer.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { axe, launch, openPage } from "./browser.mjs";
import { CONFIG, FILE, REPORT, git, isChecked, node, onDisk, openBuilder, save } from "./builder.mjs";
import { startSegue } from "./segue.mjs";

async function begin(t, files = { [FILE]: REPORT }) {
  const browser = await launch(t);
  const segue = await startSegue(t, { config: CONFIG, files });
  const page = await openPage(t, browser, segue, { width: 1440, height: 900 });
  await openBuilder(page, segue);
  return { segue, page };
}
const select = (page, id) => node(page, id).click({ position: { x: 40, y: 20 } });
const closed = (page) => page.getByRole("dialog").waitFor({ state: "detached" });
/** Runs it, and waits until so many steps have succeeded. */
const run = async (page, steps) => {
  await page.keyboard.press("r");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Control+Enter");
  await closed(page);
  await page.waitForFunction((n) => document.querySelectorAll(".node.s-success").length >= n, steps);
};

describe("a step", () => {
  it("is extracted into a composition of its own, which the text then calls", async (t) => {
    const text = REPORT.replace("&list ", "").replace(", also: *list", "");
    const { segue, page } = await begin(t, { [FILE]: text });
    const repository = git(segue);
    await select(page, "second");
    await page.keyboard.press("Shift+X");
    const name = page.getByRole("textbox", { name: "Name of the new composition" });
    await name.fill("Wrong Name");
    assert.equal(await page.getByRole("dialog").getByRole("button", { name: "Extract" }).getAttribute("aria-disabled"), "true");
    await name.fill("say-second");
    await page.getByRole("checkbox", { name: "last" }).check();
    assert.deepEqual(await axe(page), []);
    await page.getByRole("dialog").getByRole("button", { name: "Extract" }).click();
    await closed(page);
    await isChecked(page);
    await page.getByText("No findings").waitFor();
    await save(page);
    const extracted = onDisk(segue, "compositions/say-second.yaml");
    assert.match(extracted, /^name: say-second$/m);
    assert.match(extracted, /tool: text_stats/);
    // Of the rest only the extracted steps and what reads them changed.
    const changed = repository.diff().filter((line) => line.trim().length > 1);
    assert.ok(changed.every((line) => !/first step|greeting|weekly|two quotes/.test(line)), changed.join("\n"));
    // It runs as before.
    await run(page, 2);
    const { runs } = await segue.api("GET", "/runs?name=report&limit=1");
    const view = await segue.api("GET", `/runs/${runs[0].run_id}`);
    assert.deepEqual([view.status, view.output], ["success", 5]);
    await page.check();
  });

  it("becomes another kind of step, and Ctrl Z gives back the bytes", async (t) => {
    const { segue, page } = await begin(t);
    await select(page, "last");
    await page.keyboard.press("k");
    await page.getByLabel("Kind", { exact: true }).selectOption("approve");
    assert.deepEqual(await axe(page), []);
    await page.keyboard.press("Enter");
    await closed(page);
    await page.getByRole("region", { name: "Step last" }).locator(".b-step-h").getByText("approve").waitFor();
    await isChecked(page);
    await page.keyboard.press("Control+s");
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    const text = onDisk(segue);
    assert.match(text, /# the last step\n {2}- id: last\n {4}approve:/);
    assert.doesNotMatch(text, /text_stats/);
    const { steps } = await segue.api("POST", "/language/analyze", { text });
    assert.equal(steps.find((one) => one.id === "last").kind, "approve");
    await page.keyboard.press("Control+z");
    await save(page);
    assert.equal(onDisk(segue), REPORT);
    await page.check();
  });
});

describe("the text", () => {
  it("says of the word under the pointer what it is, with its last value", async (t) => {
    const { segue, page } = await begin(t);
    await run(page, 3);
    // In the shadow root of the editor: the member `text` of `{{ first.text }}`.
    const word = page.locator(".b-editor .cm-line", { hasText: "first.text" }).locator(".x-member").first();
    await word.waitFor();
    await word.hover();
    const tip = page.locator(".b-editor .cm-tooltip-hover");
    await tip.waitFor();
    assert.match(await tip.textContent(), /hello/);
    // The tool of a step: its description.
    await page.locator(".b-editor .cm-line", { hasText: "tool: text_stats" }).getByText("text_stats").hover();
    await page.locator(".b-editor .cm-tooltip-hover", { hasText: /words|characters|lines/i }).waitFor();
    await page.check();
  });

  it("has the colours of the server's tokens inside expressions", async (t) => {
    const { page } = await begin(t);
    const tokens = () => page.locator(".b-editor .cm-line", { hasText: "first.text" }).evaluate((line) => [...line.querySelectorAll("[class^=x-]")].map((one) => [one.className, one.textContent]));
    await page.locator(".b-editor .x-member").first().waitFor();
    assert.deepEqual(await tokens(), [["x-brace", "{{"], ["x-name", "first"], ["x-operator", "."], ["x-member", "text"], ["x-brace", "}}"]]);
    const colour = (name) => page.locator(`.b-editor .${name}`).first().evaluate((one) => getComputedStyle(one.querySelector("span") ?? one).color);
    assert.notEqual(await colour("x-name"), await colour("x-member"));
    await page.check();
  });
});

const CONNECT = `name: report
steps:
  - id: first
    tool: echo   # kept
    parameters: { text: hello, list: [one, two] }
  - id: last
    tool: text_stats
    parameters: {}
output: "{{ last }}"
`;
const CONNECTED = CONNECT.replace("parameters: {}", 'parameters: { text: "{{ first.text }}" }');

describe("a field of a value", () => {
  it("is connected to a parameter by dragging it there", async (t) => {
    const { segue, page } = await begin(t, { [FILE]: CONNECT.replace("parameters: {}", "parameters: { text: x }") });
    await run(page, 2);
    await select(page, "last");
    const pane = page.getByRole("region", { name: "Step last" });
    await pane.getByRole("radio", { name: "Values" }).click();
    // Of the last run: the value is there to be seen.
    const value = pane.getByRole("treeitem", { name: /^text.*hello/ }).first();
    await value.waitFor();
    assert.deepEqual(await axe(page), []);
    await value.dragTo(pane.locator('[data-field="/parameters/text"]'));
    await page.getByText(/unsaved change/).waitFor();
    await save(page);
    assert.equal(onDisk(segue), CONNECTED);
    await page.check();
  });

  it("of a schema is connected by keys alone", async (t) => {
    const { segue, page } = await begin(t, { [FILE]: CONNECT.replace("tool: echo   # kept\n    parameters: { text: hello, list: [one, two] }", "tool: text_stats   # kept\n    parameters: { text: hello }") });
    // There is no run: what `first` gives is known from its tool's schema.
    // The step at the cursor of the text is selected in the graph.
    while (!(await page.evaluate(() => document.activeElement?.classList.contains("b-editor")))) await page.keyboard.press("F6");
    for (const key of ["Control+Home", "ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
    await page.getByRole("region", { name: "Step first" }).waitFor();
    await page.keyboard.press("Shift+F6");
    await page.keyboard.press("e");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.type("parameter text");
    await page.keyboard.press("Tab");
    await page.keyboard.type("chars");
    await page.keyboard.press("Enter");
    await closed(page);
    await page.getByText(/unsaved change/).waitFor();
    await save(page);
    assert.match(onDisk(segue), /parameters: \{ text: "\{\{ first\.chars \}\}" \}/);
    assert.match(onDisk(segue), /# kept/);
    await page.check();
  });
});
