// About 60 runs in every state, and their views at a moment.
import { plans } from "./plans.mjs";
import { random, rollBack, simulate } from "./simulate.mjs";
import { inputOf, outputOf, preview } from "./values.mjs";

const boot = Date.now();
const next = random(7);
const id = (at, n) => {
  const time = Math.round(at).toString(16).padStart(12, "0");
  const tail = Math.floor(next() * 2 ** 40).toString(16).padStart(10, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8${n.toString(16).padStart(3, "0")}-00${tail}`;
};
const iso = (ms) => (ms == null || !Number.isFinite(ms) ? null : new Date(ms).toISOString());
export const runs = new Map();

export function add(name, ago, options = {}, more = {}) {
  const t0 = boot - ago;
  const plan = plans[name];
  let sim = simulate(plan, { seed: 11 + runs.size, t0, ...options });
  if (more.rollback && sim.failed) sim = rollBack(sim, more.slow, more.brokenAt);
  const run = { id: id(t0, runs.size), name, plan, t0, sim, principal: more.principal ?? "ada", status: more.status, final: more.final ?? "success", interrupted: more.interrupted ?? false, question: more.question ?? null };
  runs.set(run.id, run);
  return run;
}

export function stepState(run, record, now) {
  if (run.interrupted && record.end === Infinity) return "running";
  if (record.start === null) return record.final === "skipped" && (run.sim.failed === null || now >= run.sim.failed.end || record.reason === "another branch was taken") ? "skipped" : "pending";
  if (now < record.start) return "pending";
  if (now < record.end) return "running";
  const back = record.rollback;
  if (back && now >= back.end) return back.ok ? "rolled_back" : "rollback_failed";
  if (back && now >= back.start) return "running";
  return record.final;
}

export function statusOf(run, now) {
  if (run.status) return run.status;
  if (run.question) return "waiting";
  return now < run.sim.end || run.sim.open ? "running" : run.final;
}

export function summary(run, now = Date.now()) {
  const status = statusOf(run, now);
  const over = !["running", "waiting", "pending"].includes(status);
  const top = run.sim.steps.filter((s) => !s.path.includes("/"));
  const last = run.sim.open ? Math.max(run.t0, ...run.sim.steps.map((s) => (Number.isFinite(s.end) && s.end ? s.end : 0))) : run.sim.end;
  return {
    run_id: run.id, name: run.name, status, success: status === "success", started_at: iso(run.t0), completed_at: over ? iso(run.sim.end) : null,
    duration_ms: Math.round((over || run.interrupted ? last : now) - run.t0), plan_hash: run.plan.hash, principal: run.principal, interrupted: run.interrupted,
    steps_total: top.length, steps_done: top.filter((s) => !["pending", "running"].includes(stepState(run, s, now))).length,
    tools: run.calls ? [run.calls] : [...new Set(run.sim.steps.map((s) => s.plan.tool).filter(Boolean))].slice(0, 5),
  };
}

export function stepView(run, record, now, whole = false) {
  const status = stepState(run, record, now);
  const began = record.start !== null && now >= record.start;
  const ended = began && now >= record.end;
  const value = (make) => (began ? (whole ? make(record) : preview(make(record))) : null);
  return {
    id: record.path, kind: record.plan.kind, tool: record.plan.tool, status, attempts: record.attempts.filter((a) => a.start <= now).length,
    input: value(inputOf), output: ended && record.final === "success" ? value(outputOf) : null, error: ended ? record.error : null,
    reason: status === "skipped" ? record.reason : null, started_at: began ? iso(record.start) : null, completed_at: ended ? iso(record.end) : null,
    duration_ms: began ? Math.round(Math.min(now, record.end) - record.start) : 0,
  };
}

const itemOf = (path) => Math.max(-1, ...[...path.matchAll(/\[(\d+)\]/g)].map((m) => Number(m[1])));

/** As in the server, an item that has not begun has no steps. */
export function begun(run, now) {
  return run.sim.steps.filter((s) => !s.path.includes("[") || (s.start !== null && s.start <= now) || s.final === "skipped" && now >= run.sim.end);
}

export function view(run, now = Date.now()) {
  const { success, ...rest } = summary(run, now);
  const kept = begun(run, now).filter((s) => itemOf(s.path) < 100);
  const failed = run.sim.failed && now >= run.sim.failed.end ? [run.sim.failed.error] : [];
  return {
    ...rest, success, request_id: "req_1", plan_id: "plan_1", chain_id: "c", dialect: "composition", output: success ? preview(outputOf(run.sim.steps[0])) : null, results: {},
    errors: failed, warnings: [], waiting_for: run.question ? [run.question] : [], steps: kept.map((s) => stepView(run, s, now)), steps_left_out: run.sim.steps.length - kept.length,
    state: {}, steps_executed: run.sim.steps.length, steps_succeeded: 0, steps_failed: 0, duration: rest.duration_ms * 1e6, input: { repo: "acme/site", limit: 50, sites: ["a", "b"] }, context: {},
  };
}

export const approval = { step: "delete", kind: "call", tool: "github:delete_branch", message: "May it call github:delete_branch?", args: { repo: "acme/site", branches: ["beta-1", "beta-2", "old/ui"] }, covers: [{ tool: "github:delete_branch", effect: "destroys", arguments: { repo: "acme/site" }, can_be_undone: false, takes_back: false }] };

const quota = { message: "507 from github: release storage quota exceeded, 2.1 GB over", code: "retries-exhausted", attempts: 3, hint: "free storage at GitHub, or set `on_failure: continue` to publish without assets" };
const noPull = { message: "404 from github: no such pull request", code: "tool-error", attempts: 3, tolerated: true };
const releaseFails = { "summaries[7]/files": noPull, assets: quota };
const items = (n) => () => n;
const MIN = 60_000;

// Live ones first: a slow rollback, a loop of 300 items under way, and questions.
add("release-notes", 52_000, { items: items(23), fail: releaseFails, slow: 4 }, { rollback: true, slow: 30, final: "rolled_back", principal: "release-bot" });
add("nightly-export", 60_000, { items: items(300), slow: 12, fail: { "tables[41]/copy": { ...noPull, message: "row 7 is not valid UTF-8" }, "tables[42]/copy": { ...noPull, message: "row 7 is not valid UTF-8" }, "tables[77]/verify": { ...noPull, message: "checksum differs" } } }, { principal: "schedule" });
add("branch-cleanup", 3 * MIN, { wait: { delete: true } }, { question: approval, principal: "release-bot" });
add("branch-cleanup", 11 * MIN, { hangAt: "mail", doubt: true }, { question: { step: "mail", kind: "doubt", tool: "mail:send", message: "The answer of mail:send was lost. Did it do its work?", args: { to: "team@acme.example" } }, principal: "billing" });
add("branch-cleanup", 17 * MIN, { wait: { ok: true } }, { question: { step: "ok", kind: "approval", tool: null, message: "Delete 3 branches?", args: null, schema: { type: "object", properties: { keep: { type: "array", items: { type: "string" } } } } }, principal: "mara" });
add("crawl-docs", 20 * MIN, { items: (path) => (path === "sites" ? 6 : 30), hangAt: "sites[3]/pages[12]/fetch" }, { interrupted: true, status: "running" });
add("release-notes", 44 * MIN, { items: items(23), fail: releaseFails }, { rollback: true, final: "rolled_back", principal: "release-bot" });
add("release-notes", 55 * MIN, { items: items(23), fail: { assets: quota } }, { rollback: true, brokenAt: "tag", final: "rollback_failed", principal: "jo" });
add("sync-contacts", 22 * MIN, { fail: { fetch: { message: "401 from crm, retries do not help", code: "unauthorized", attempts: 1 } } }, { final: "failed", principal: "schedule" });
add("thousand-steps", 30 * MIN, {}, {});
add("crawl-docs", 70 * MIN, { items: (path) => (path === "sites" ? 6 : 30), fail: { "sites[2]/pages[4]/fetch": { ...noPull, message: "410 gone" } } }, { final: "partial" });
add("nightly-export", 31 * MIN, { items: items(300) }, { principal: "schedule" });
add("triage-issue", 80 * MIN, {}, { final: "cancelled" });
add("branch-cleanup", 90 * MIN, {}, { final: "denied", principal: "release-bot" });
add("release-notes", 95 * MIN, { items: items(4) }, { final: "dry_run" });
for (let i = 0; i < 48; i++) {
  const name = ["triage-issue", "hello", "sync-contacts", "triage-issue", "release-notes"][i % 5];
  const fails = i % 9 === 4;
  add(name, (100 + i * 23) * MIN, { items: items(5 + i), take: () => i % 2, fail: fails ? { fetch: { message: "timed out after 30 s", code: "timeout", attempts: 2 }, issue: { message: "404 from github", attempts: 1 }, pulls: { message: "403 from github: rate limit", attempts: 3 }, words: { message: "the text is empty", attempts: 1 } } : {} }, { final: fails ? "failed" : "success", principal: ["mara", "jo", "ada", "schedule"][i % 4] });
}
