// Plans of invented compositions, in the shape of the server's PlanView.
const reads = { effect: "reads", rollback: { kind: "not_needed" }, confirms: false };
const writes = (tool) => ({ effect: "writes", rollback: { kind: "call", tool }, confirms: false });

export const tool = (id, name, needs = [], more = {}) => ({ id, kind: "tool", tool: name, needs, ...reads, ...more });
const loop = (id, over, steps, needs = [], more = {}) => ({ id, kind: "loop", tool: null, needs, effect: "reads", rollback: { kind: "inside" }, confirms: false, bodies: [{ label: `each ${over}`, steps }], ...more });
const choose = (id, cases, needs = []) => ({ id, kind: "choose", tool: null, needs, effect: "reads", rollback: { kind: "inside" }, confirms: false, bodies: cases.map(([label, steps]) => ({ label, steps })) });

function plan(name, description, steps, effect = "reads") {
  const hash = Buffer.from(name.padEnd(32, "s")).toString("hex").slice(0, 64).padEnd(64, "0");
  return {
    hash, name, description, dialect: "composition", atomic: false, effect, inputs: { type: "object", properties: { repo: { type: "string" }, limit: { type: "integer", default: 50 } }, required: ["repo"] },
    output: {}, steps, together: [steps.map((s) => s.id)], longest_path: steps.map((s) => s.id), tools: {},
    error_handling: { failure_strategy: "rollback", rollback_on_failure: true, max_retries: 2 },
  };
}

const releaseNotes = plan("release-notes", "Collects merged pull requests, writes release notes and publishes them.", [
  tool("pulls", "github:search_pull_requests"),
  tool("notify", "slack:post_message", [], { effect: "writes", rollback: { kind: "impossible", reason: "readers may have seen it" } }),
  loop("summaries", "pulls.items", [tool("read", "github:get_pull_request"), tool("files", "github:list_files")], ["pulls"]),
  choose("layout", [["when summaries | length > 50", [tool("split", "builtin:text_split")]], ["otherwise", [tool("join", "builtin:text_join")]]], ["summaries"]),
  tool("notes", "builtin:files_write", ["layout"], writes("builtin:files_restore")),
  tool("tag", "github:create_tag", ["layout"], writes("github:delete_ref")),
  tool("release", "github:create_release", ["notes", "tag"], writes("github:delete_release")),
  tool("assets", "github:upload_release_asset", ["release"], writes("github:delete_release_asset")),
  tool("announce", "slack:post_message", ["assets"], { effect: "writes", rollback: { kind: "impossible", reason: "readers may have seen it" } }),
], "writes");

const nightlyExport = plan("nightly-export", "Copies every table to the archive.", [
  tool("list", "postgres:list_tables"),
  loop("tables", "list.tables", [tool("copy", "archive:copy_table"), tool("verify", "archive:checksum", ["copy"])], ["list"]),
  tool("report", "builtin:text_join", ["tables"]),
], "writes");

const nestedLoops = plan("crawl-docs", "Visits every page of every site.", [
  loop("sites", "input.sites", [
    tool("map", "web:sitemap"),
    loop("pages", "map.urls", [tool("fetch", "web:get"), tool("words", "builtin:text_stats", ["fetch"])], ["map"]),
  ]),
  tool("index", "search:put", ["sites"], writes("search:delete")),
], "writes");

const triage = plan("triage-issue", "Labels an issue and assigns somebody.", [
  tool("issue", "github:get_issue"),
  { id: "facts", kind: "parallel", tool: null, needs: ["issue"], effect: "reads", rollback: { kind: "inside" }, confirms: false, bodies: [
    { label: "history", steps: [tool("history", "github:list_events")] },
    { label: "author", steps: [tool("author", "github:get_user")] },
    { label: "similar", steps: [tool("similar", "search:query")] },
  ] },
  tool("greeting", "composition:greet", ["issue"], { bodies: [{ label: "greet", steps: [tool("words", "builtin:text_join"), tool("shorten", "builtin:text_truncate", ["words"])] }] }),
  choose("kind", [["when facts.similar.hits > 0", [tool("close", "github:close_issue", [], { effect: "writes", rollback: { kind: "call", tool: "github:reopen_issue" } })]], ["when issue.title matches 'bug'", [tool("bug", "github:add_label", [], writes("github:remove_label"))]], ["otherwise", [tool("question", "github:add_label", [], writes("github:remove_label"))]]], ["facts"]),
  tool("assign", "github:assign", ["kind", "greeting"], writes("github:unassign")),
], "writes");

const cleanup = plan("branch-cleanup", "Deletes branches that were merged long ago.", [
  tool("branches", "github:list_branches"),
  tool("old", "builtin:filter", ["branches"]),
  { id: "ok", kind: "approve", tool: null, needs: ["old"], effect: "none", rollback: { kind: "not_needed" }, confirms: true },
  tool("delete", "github:delete_branch", ["ok"], { effect: "destroys", rollback: { kind: "impossible", reason: "commits may be lost" }, confirms: true }),
  tool("mail", "mail:send", ["delete"], { effect: "unknown", rollback: { kind: "unknown" } }),
], "destroys");

function bigGraph(count) {
  const steps = [];
  for (let i = 0; i < count; i++) {
    const needs = [];
    if (i >= 20) needs.push(`s${i - 20}`);
    if (i >= 20 && i % 7 === 0) needs.push(`s${i - 19}`);
    steps.push(tool(`s${i}`, `demo:work_${i % 9}`, needs));
  }
  return steps;
}
const thousand = plan("thousand-steps", "A graph of 1,000 steps.", bigGraph(1000));
const hello = plan("hello", "Greets by name.", [tool("words", "builtin:text_join"), tool("shout", "builtin:text_upper", ["words"])]);
const syncContacts = plan("sync-contacts", "Copies contacts from the CRM.", [tool("fetch", "crm:list_contacts"), tool("clean", "builtin:filter", ["fetch"]), tool("store", "store:put", ["clean"], writes("store:restore"))], "writes");

export const plans = Object.fromEntries([releaseNotes, nightlyExport, nestedLoops, triage, cleanup, thousand, hello, syncContacts].map((p) => [p.name, p]));
