// What the tests of the builder share: compositions with comments, git, and the keys and drags of a person.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";

export const FILE = "compositions/report.yaml";
/** Every line that an edit need not touch has something that a careless writer would lose. */
export const REPORT = `# The weekly report.
#   Ask Ada before you change it.

name: report
description: 'Reads,   then says'   # two quotes on purpose
input: { type: object, properties: { words: { type: array, default: [a, b] } } }

steps:
  # the first step
  - id: first
    tool: echo   # says what it gets
    parameters:
      text: "hello"      # greeting
      list: &list [one, two]

  - { id: second, tool: echo, parameters: { text: "{{ first.text }}", also: *list } }   # flow style

  # the last step
  - id: last
    tool: text_stats
    parameters: { text: "{{ second.text }}" }

output: "{{ last.chars }}"   # a number
# end
`;

export const CONFIG = `compositions: ["compositions/*.yaml"]\n`;

/** The folder of a server under git: what a change of a file shows. */
export function git(segue) {
  const run = (...args) => execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@example.com", ...args], { cwd: segue.dir, encoding: "utf8" });
  run("init", "-q");
  run("add", "compositions");
  run("commit", "-qm", "before");
  return {
    /** Lines that a change of a file removed and added, without context. */
    diff: (file = FILE) =>
      run("diff", "--unified=0", "--no-color", "--", file)
        .split("\n")
        .filter((line) => /^[-+](?![-+]{2})/.test(line)),
    commit: () => run("commit", "-qam", "next"),
  };
}

export const onDisk = (segue, file = FILE) => readFileSync(join(segue.dir, file), "utf8");

export const node = (page, id) => page.locator(".react-flow__node", { has: page.locator("b", { hasText: new RegExp(`^${id}$`) }) }).first();

export async function openBuilder(page, segue, file = FILE) {
  await page.goto(`${segue.url}/edit?file=${encodeURIComponent(file)}`);
  await page.locator(".b-editor").waitFor();
  await isChecked(page);
}

/** The findings are those of the current text. */
export const isChecked = (page) => page.locator("[data-checked]").waitFor();

/** Saves by key and waits until the page says so. */
export async function save(page) {
  await page.keyboard.press("Control+s");
  await page.getByText(/unsaved change/).waitFor({ state: "detached" });
}

/** `N`, the name, Enter, `moves` through the places, Enter. */
export async function addByKeys(page, what, moves = []) {
  await page.keyboard.press("n");
  await page.keyboard.type(what);
  await page.keyboard.press("Enter");
  await page.getByRole("listbox", { name: /^Place of/ }).waitFor();
  for (const key of moves) await page.keyboard.press(key);
  await page.keyboard.press("Enter");
}

/** Presses arrow keys until a place is chosen that has these words. */
export async function choosePlace(page, words) {
  const box = page.getByRole("listbox", { name: /^Place of/ });
  await box.waitFor();
  await page.keyboard.press("Home");
  for (let i = 0; i < 40; i++) {
    const now = await box.locator("[aria-selected=true]").textContent();
    if (now === words) return;
    await page.keyboard.press("ArrowDown");
  }
  assert.fail(`there is no place “${words}”`);
}
