// What an action of the builder writes: only what it means, as `git diff` shows it. And nothing over what another
// program wrote.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { axe, launch, openPage } from "./browser.mjs";
import { CONFIG, FILE, REPORT, addByKeys, choosePlace, git, isChecked, node, onDisk, openBuilder, save } from "./builder.mjs";
import { startSegue } from "./segue.mjs";

const COMMENTS = ["# The weekly report.", "#   Ask Ada before you change it.", "# two quotes on purpose", "# the first step", "# says what it gets", "# greeting", "# flow style", "# the last step", "# a number", "# end"];

async function begin(t, options) {
  const browser = await launch(t);
  const segue = await startSegue(t, { config: CONFIG, files: { [FILE]: REPORT }, ...options });
  const page = await openPage(t, browser, segue, { width: 1440, height: 900, allow: [/412/] });
  await openBuilder(page, segue);
  return { segue, page };
}
const dialog = async (page, text) => {
  await page.getByRole("dialog").waitFor();
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
};

describe("git diff after an action of the builder", () => {
  it("shows only what the action means, and every comment stays", async (t) => {
    const { segue, page } = await begin(t);
    const repository = git(segue);
    /** Selects a step, acts, saves; then the changed lines are as expected, and the change is committed. */
    const act = async (name, step, what, expected) => {
      if (step) await node(page, step).click({ position: { x: 40, y: 20 } });
      await what();
      await page.getByText(/unsaved change/).waitFor();
      await save(page);
      const changed = repository.diff();
      assert.ok(expected(changed), `${name}:\n${changed.join("\n")}\n\n${onDisk(segue)}`);
      for (const comment of COMMENTS) assert.ok(onDisk(segue).includes(comment), `${name}: ${comment} is gone`);
      repository.commit();
    };
    const only = (...lines) => (changed) => JSON.stringify(changed.map((line) => line.replace(/\s+/g, " ").trim()).sort()) === JSON.stringify([...lines].sort());

    await act("add a step after the first one", "first", () => addByKeys(page, "builtin:text_stats"), (changed) => changed.length > 0 && changed.every((line) => line.startsWith("+")) && changed.join(" ").includes("text_stats"));
    await act("rename the first step", "first", async () => (await page.keyboard.press("F2"), dialog(page, "greeting")), only("- - id: first", '- - { id: second, tool: echo, parameters: { text: "{{ first.text }}", also: *list } } # flow style', "+ - id: greeting", '+ - { id: second, tool: echo, parameters: { text: "{{ greeting.text }}", also: *list } } # flow style'));
    await act("duplicate the last step", "last", () => page.keyboard.press("d"), (changed) => changed.every((line) => line.startsWith("+")) && changed.join(" ").includes("last_2"));
    await act("remove the duplicate", "last_2", () => page.keyboard.press("Delete"), (changed) => changed.length > 0 && changed.every((line) => line.startsWith("-")) && changed.join(" ").includes("last_2"));
    await act("wait for the first step", "greeting", async () => {
      await page.keyboard.press("e");
      await page.getByLabel("To", { exact: true }).selectOption("last");
      await page.getByRole("button", { name: "Connect", exact: true }).click();
    }, (changed) => changed.length <= 2 && changed.some((line) => line.startsWith("+") && line.includes("greeting")));
    await act("wrap the last step", "last", async () => {
      await page.keyboard.press("w");
      await page.getByLabel("Over", { exact: true }).fill("{{ input.words }}");
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    }, (changed) => changed.some((line) => line.includes("loop:")) && changed.filter((line) => line.startsWith("-")).every((line) => /last|tool|param|depends/.test(line)));
    await act("move the second step", "second", async () => {
      await page.keyboard.press("m");
      await choosePlace(page, "after greeting");
      await page.keyboard.press("Enter");
    }, (changed) => changed.filter((line) => line.trim().length > 1).every((line) => line.includes("second")));
    // Undo of everything that was undone on disk: the bytes of before.
    const before = onDisk(segue);
    await node(page, "second").click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("Delete");
    await page.locator(".node.ghost", { hasText: "second" }).waitFor();
    await page.keyboard.press("Control+z");
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    assert.equal(onDisk(segue), before);
    assert.deepEqual(await axe(page), []);
    // The outline says the same to a screen reader, and selects the same step.
    await page.keyboard.press("2");
    await page.getByRole("table", { name: "Steps" }).getByRole("button", { name: "greeting" }).click();
    await page.getByRole("region", { name: "Step greeting" }).waitFor();
    assert.deepEqual(await axe(page), []);
    await page.check();
  });

  it("shows nothing of the graph's actions that were undone in the text", async (t) => {
    const { segue, page } = await begin(t);
    await node(page, "second").click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("d");
    await node(page, "second_2").waitFor();
    await page.keyboard.press("F2");
    await dialog(page, "other");
    await node(page, "other").waitFor();
    await page.keyboard.press("Control+z");
    await node(page, "second_2").waitFor();
    await page.keyboard.press("Control+z");
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    await page.keyboard.press("Control+Shift+Z");
    await node(page, "second_2").waitFor();
    await page.keyboard.press("Control+z");
    await page.keyboard.press("Control+s");
    assert.equal(onDisk(segue), REPORT);
    await page.check();
  });
});

describe("a file that changed on disk", () => {
  it("is shown as a difference, and not overwritten", async (t) => {
    const { segue, page } = await begin(t);
    await node(page, "second").click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("F2");
    await dialog(page, "middle");
    await node(page, "middle").waitFor();
    const theirs = REPORT.replace('text: "hello" ', 'text: "good day" ');
    writeFileSync(join(segue.dir, FILE), theirs);
    await page.keyboard.press("Control+s");
    await page.getByRole("dialog", { name: "The file changed on disk" }).waitFor();
    assert.equal(onDisk(segue), theirs);
    assert.deepEqual(await axe(page), []);
    // Theirs and mine together: each change keeps the side that made it.
    await page.getByRole("button", { name: "Save the merge" }).click();
    await page.getByText(/unsaved change/).waitFor({ state: "detached" });
    const merged = onDisk(segue);
    assert.match(merged, /good day/);
    assert.match(merged, /id: middle/);
    await page.check();
  });

  it("that is gone is written only on demand", async (t) => {
    const { segue, page } = await begin(t);
    await page.getByRole("button", { name: "More for this composition" }).click();
    await page.getByRole("menuitem", { name: "Rename the file…" }).click();
    await page.getByRole("textbox", { name: "File" }).fill("compositions/other.yaml");
    await page.keyboard.press("Enter");
    await page.waitForURL(/other\.yaml/);
    assert.equal(onDisk(segue, "compositions/other.yaml"), REPORT);
    await page.getByRole("button", { name: "More for this composition" }).click();
    await page.getByRole("menuitem", { name: "Delete the file…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByRole("heading", { level: 1, name: "Compositions" }).waitFor();
    assert.throws(() => onDisk(segue, "compositions/other.yaml"));
    await page.check();
  });
});

describe("leaving with unsaved changes", () => {
  it("asks, and loses nothing that is kept", async (t) => {
    const { segue, page } = await begin(t);
    await node(page, "last").click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("Delete");
    await page.getByText(/unsaved change/).waitFor();
    await page.getByRole("link", { name: "Tools" }).click();
    await page.getByRole("dialog", { name: "Unsaved changes" }).waitFor();
    await page.getByRole("button", { name: "Stay" }).click();
    await page.locator(".node.ghost", { hasText: "last" }).waitFor();
    await page.getByRole("link", { name: "Tools" }).click();
    await page.getByRole("button", { name: "Leave without saving" }).click();
    await page.getByRole("heading", { level: 1, name: "Tools" }).waitFor();
    assert.equal(onDisk(segue), REPORT);
    await page.check();
  });
});

describe("without the right to write", () => {
  it("edits, checks and copies, and says why it cannot save", async (t) => {
    const token = `segue_${"r".repeat(40)}`;
    const config = `${CONFIG}server: { principals: { reader: { token: "\${READER_TOKEN}", rights: [read, run] } } }\n`;
    const browser = await launch(t);
    const segue = await startSegue(t, { config, files: { [FILE]: REPORT }, env: { READER_TOKEN: token } });
    // Requests of the first session that are under way when the second one begins are refused.
    const page = await openPage(t, browser, segue, { width: 1440, height: 900, allow: [/ 401 .*\/api\/v1\/(questions|session|compositions|tools|runs)/] });
    await page.evaluate(async (secret) => {
      const answer = await fetch("/api/v1/session", { method: "POST", headers: { "Content-Type": "application/json", "X-Segue-CSRF": localStorage.getItem("segue-csrf") }, body: JSON.stringify({ token: secret }) });
      localStorage.setItem("segue-csrf", (await answer.json()).csrf);
    }, token);
    await openBuilder(page, segue);
    await page.getByText(/It cannot be saved here: needs the right “write”/).waitFor();
    await node(page, "last").click({ position: { x: 40, y: 20 } });
    await page.keyboard.press("d");
    await node(page, "last_2").waitFor();
    await page.keyboard.press("Control+s");
    await page.getByRole("button", { name: "More for this composition" }).click();
    await page.getByRole("menuitem", { name: "Copy the text" }).waitFor();
    await isChecked(page);
    assert.equal(onDisk(segue), REPORT);
    assert.deepEqual(await axe(page), []);
    await page.check();
  });
});
