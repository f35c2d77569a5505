// A stand-in for `segue serve` while the page is developed: it answers the page's API with invented runs.
// `npm run mock` (port 7434), then `npm run dev`; with a built `dist/` it also serves the page, under the
// server's content security policy. `--sign-in` starts without a session (token: let-me-in).
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import * as details from "./mock/details.mjs";
import { dryRun } from "./mock/compositions.mjs";
import { plans } from "./mock/plans.mjs";
import { addQuestions } from "./mock/questions.mjs";
import { add, runs, stepState, summary, view } from "./mock/runs.mjs";
import { builder } from "./mock/language.mjs";
import { others } from "./mock/others.mjs";
import { callTool, progress, tools } from "./mock/tools.mjs";

const port = Number(process.env.PORT ?? 7434);
const dist = process.env.SEGUE_DIST ?? join(dirname(fileURLToPath(import.meta.url)), "..", "dist");
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const session = { principal: "ada@acme", rights: ["read", "run", "compose", "write", "admin"], toolset: null, csrf: "mock-csrf", expires_at: new Date(Date.now() + 12 * 3_600_000).toISOString(), writable: true, version: "0.0.0-mock" };
addQuestions();
let signedIn = !process.argv.includes("--sign-in");

const problem = (status, detail, more = {}) => ({ status, body: { type: "urn:segue:error:x", title: "Refused", status, detail, code: status === 404 ? "not-found" : "unauthorized", ...more } });
const ok = (body, status = 200) => ({ status, body });
const sorted = () => [...runs.values()].sort((a, b) => b.t0 - a.t0);

function listRuns(query, now) {
  const text = query.get("text")?.toLowerCase();
  const kept = sorted().map((run) => summary(run, now)).filter((run) =>
    (!query.has("status") || query.getAll("status").includes(run.status)) && (!query.get("name") || run.name === query.get("name")) &&
    (!query.get("tool") || run.tools.includes(query.get("tool"))) && (!query.get("since_ms") || Date.parse(run.started_at) >= Number(query.get("since_ms"))) &&
    (!text || `${run.name} ${run.run_id} ${run.tools.join(" ")}`.toLowerCase().includes(text)));
  const from = Number(query.get("cursor") ?? 0);
  const limit = Number(query.get("limit") ?? 50);
  return { runs: kept.slice(from, from + limit), next: from + limit < kept.length ? String(from + limit) : null, searched: runs.size };
}

function questions() {
  const wait = (run) => {
    const { approvers = null, ...question } = run.question;
    return { run_id: run.id, name: run.name, principal: run.principal, asked_at: new Date(run.t0 + 4000).toISOString(), expires_at: question.kind === "call" ? new Date(run.t0 + 3_600_000 * 2).toISOString() : null, answerable: true, approvers_needed: approvers, question };
  };
  return { questions: sorted().filter((run) => run.question).map(wait) };
}

function runRoute(method, run, rest, query, body) {
  const now = Date.now();
  const done = () => ok(view(run, now), 202);
  if (method === "GET") {
    if (rest === "") return ok(view(run, now));
    if (rest === "plan") return ok(run.plan);
    if (rest === "source") return ok(details.source(run));
    if (rest === "steps") return ok(details.steps(run, query, now));
    if (rest === "value") return ok(details.value(run, query, now));
    if (rest === "compare") return runs.has(query.get("with")) ? ok(details.compare(run, runs.get(query.get("with")), now)) : problem(404, "no such run");
    const detail = rest.startsWith("steps/") && details.stepDetail(run, decodeURIComponent(rest.slice(6)), now);
    return detail ? ok(detail) : problem(404, `no step \`${rest}\``);
  }
  if (rest === "cancel") Object.assign(run, { status: "cancelled", question: null });
  if (rest === "approve") Object.assign(run, body.approved ? { question: null, status: "success" } : { question: null, status: "denied" });
  if (rest === "resume") Object.assign(run, { interrupted: false, status: undefined, question: null });
  if (rest === "rollback") run.status = "rolled_back";
  if (rest === "rerun") return ok({ ...view(add(run.name, 0, { items: () => 12, slow: 2 }, {})) }, 202);
  return done();
}

function route(method, url, body, headers) {
  const path = url.pathname.replace("/api/v1/", "");
  if (path === "session") {
    if (method === "DELETE") signedIn = false;
    if (method === "POST") {
      if (body.token !== "let-me-in" && body.code !== "CODE") return problem(401, "the token is wrong");
      signedIn = true;
    }
    return signedIn ? ok(session) : problem(401, "no session", { sign_in: { oidc: "/api/v1/session/oidc" } });
  }
  if (!signedIn) return problem(401, "no session");
  if (path === "runs") return ok(listRuns(url.searchParams, Date.now()));
  const match = /^runs\/([^/]+)\/?(.*)$/.exec(path);
  if (match) return runs.has(match[1]) ? runRoute(method, runs.get(match[1]), match[2], url.searchParams, body) : problem(404, "no such run");
  if (path === "questions") return ok(questions());
  if (path === "compositions/execute" && body.options?.dry_run && plans[body.name]) return ok(dryRun(plans[body.name], body.input));
  if (path === "compositions/execute") return ok(view(add(body.name ?? "hello", 0, { items: () => 12, slow: 2 }, {})), 202);
  const called = /^tools\/([^/]+)\/call$/.exec(path);
  const tool = called && tools.find((one) => one.id === decodeURIComponent(called[1]));
  if (tool) return callTool(tool, body, session.principal).then((result) => ok(result, result.status === "waiting" ? 202 : 200));
  const built = builder(method, path, body, headers);
  if (built) return built;
  const other = others(method, path, url.searchParams, body, plans);
  return other ?? problem(404, `no route ${path}`);
}

const streams = new Set();
function follow(request, response, url) {
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const stream = { response, runs: new Set(url.searchParams.getAll("run").map((one) => one.split("@")[0])) };
  response.write("event: ready\ndata: {}\n\n");
  streams.add(stream);
  request.on("close", () => streams.delete(stream));
}
let seq = 0;
const send = (event, data, only = () => true) => {
  for (const stream of streams) if (only(stream)) stream.response.write(`id: ${++seq}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
};
const seen = new Map();
const seenSteps = new Map();
let seenQuestions = -1;
setInterval(() => {
  const now = Date.now();
  for (const run of runs.values()) {
    const line = summary(run, now);
    const mark = `${line.status} ${line.steps_done}`;
    if (seen.get(run.id) !== mark) send("run", line);
    seen.set(run.id, mark);
    if (![...streams].some((s) => s.runs.has(run.id))) continue;
    for (const record of run.sim.steps) {
      const key = `${run.id} ${record.path}`;
      const state = stepState(run, record, now);
      if (seenSteps.has(key) && seenSteps.get(key) !== state) send("step", { run_id: run.id, seq: ++seq, event: `step_${state}`, at_ms: now, step: record.path, detail: null }, (s) => s.runs.has(run.id));
      seenSteps.set(key, state);
    }
  }
  for (const line of progress(now)) send("step", { ...line, seq: ++seq }, (s) => s.runs.has(line.run_id));
  const count = questions().questions.length;
  if (count !== seenQuestions) send("questions", { count });
  seenQuestions = count;
}, 200);

const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
function page(url, response) {
  const file = normalize(join(dist, url.pathname));
  const found = file.startsWith(dist) && existsSync(file) && statSync(file).isFile() ? file : join(dist, "index.html");
  response.writeHead(200, { "Content-Type": TYPES[extname(found)] ?? "application/octet-stream", "Content-Security-Policy": CSP });
  createReadStream(found).pipe(response);
}

createServer(async (request, response) => {
  const url = new URL(request.url, `http://${request.headers.host}`);
  if (!url.pathname.startsWith("/api/")) return page(url, response);
  if (url.pathname === "/api/v1/events") return follow(request, response, url);
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : {};
  const noCsrf = request.method !== "GET" && request.headers["x-segue-csrf"] !== undefined && url.pathname !== "/api/v1/session" && request.headers["x-segue-csrf"] !== session.csrf;
  const answer = noCsrf ? problem(403, "the header X-Segue-CSRF is missing") : await route(request.method, url, body, request.headers);
  response.writeHead(answer.status, { "Content-Type": answer.status < 400 ? "application/json" : "application/problem+json" });
  response.end(answer.status === 204 ? undefined : JSON.stringify(answer.body));
}).listen(port, "127.0.0.1", () => console.log(`mock server: http://127.0.0.1:${port}/`));
