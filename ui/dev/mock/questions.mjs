// Questions of every kind, also hostile and long ones.
import { add } from "./runs.mjs";

const MIN = 60_000;
const covers = [
  { tool: "github:search_pull_requests", effect: "reads", can_be_undone: true, takes_back: false },
  { tool: "github:create_release", effect: "writes", arguments: { repo: "acme/site", tag: "v2.4.0", draft: false }, can_be_undone: true, takes_back: false },
  { tool: "slack:post_message", effect: "writes", can_be_undone: false, takes_back: false },
  { tool: "github:delete_release", effect: "destroys", can_be_undone: false, takes_back: true },
];
const data = {
  type: "object",
  properties: {
    copies: { type: "integer", minimum: 1, maximum: 500, description: "How many are printed" },
    paper: { oneOf: [{ const: "a4", title: "A4, white" }, { const: "letter", title: "Letter" }], default: "a4" },
    to: { type: "string", format: "email" },
    finish: { type: "array", uniqueItems: true, items: { enum: ["staple", "punch", "fold"] } },
    note: { type: ["string", "null"] },
  },
  required: ["copies"],
};

export function addQuestions() {
  add("release-notes", 26 * MIN, { wait: { pulls: true } }, { principal: "release-bot", question: { step: "pulls", kind: "run", tool: null, message: "may `release-notes` run, with everything that it calls?", args: { repo: "acme/site", version: "2.4.0" }, covers, approvers: 2 } });
  add("hello", 64 * MIN, { wait: { words: true } }, { principal: "ada@acme", question: { step: "words", kind: "approval", tool: null, message: "How many copies of the report?", args: null, schema: data } });
  const hostile = { path: "docs/\u202Egnp.exe", html: "<img src=x onerror=alert(1)>", bell: "\u0007", long: `${"all of it ".repeat(400)}the end`, token: "«sensitive»" };
  add("sync-contacts", 70 * MIN, { wait: { store: true } }, { principal: "<b>mallory</b>\u202E", question: { step: "store", kind: "call", tool: "store:put", message: "may `store:put` be called?", args: hostile, covers: [{ tool: "store:put", effect: "unknown", can_be_undone: true, takes_back: false }, { tool: "store:restore", effect: "writes", arguments: { id: 7 }, can_be_undone: false, takes_back: true }] } });
}
