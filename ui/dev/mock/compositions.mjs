// Compositions with their texts, findings, tests and dry runs.
import { source } from "./details.mjs";

const issueInput = {
  type: "object",
  $defs: {
    Person: { type: "object", title: "Person", properties: { login: { type: "string" }, mail: { type: "string", format: "email" } }, required: ["login"] },
    Rule: { oneOf: [{ type: "object", title: "By label", properties: { kind: { const: "label" }, label: { enum: ["bug", "docs", "question"] } }, required: ["kind", "label"] }, { type: "object", title: "By words", properties: { kind: { const: "words" }, words: { type: "array", items: { type: "string" }, minItems: 1 } }, required: ["kind", "words"] }, { $ref: "#/$defs/Not" }] },
    Not: { type: "object", title: "Not", properties: { kind: { const: "not" }, rule: { $ref: "#/$defs/Rule" } }, required: ["kind", "rule"] },
  },
  properties: {
    repo: { type: "string", pattern: "^[^/]+/[^/]+$", description: "Owner and name", examples: ["acme/site"] },
    number: { type: "integer", minimum: 1 },
    assignee: { anyOf: [{ $ref: "#/$defs/Person" }, { type: "null" }], default: null },
    rule: { $ref: "#/$defs/Rule", description: "When a label is set" },
    since: { type: "string", format: "date" },
    dry: { type: "boolean", default: false },
    tags: { type: "array", uniqueItems: true, items: { enum: ["a", "b", "c"] } },
    headers: { type: "object", additionalProperties: { type: "string" } },
    anything: {},
  },
  required: ["repo", "number", "rule"],
};
const inputOf = (plan) => (plan.name === "triage-issue" ? issueInput : plan.inputs);
const summaryOf = (plan) => ({ name: plan.name, description: plan.description, input: inputOf(plan), output: {}, effect: plan.effect, plan_hash: plan.hash });

const broken = [{ file: "compositions/broken.yaml", findings: [{ code: "unknown-tool", severity: "error", message: "there is no tool `github:creat_tag`", file: "compositions/broken.yaml", line: 7, column: 11, end_line: 7, end_column: 27, help: "did you mean `github:create_tag`?", url: "" }] }];

function findingsOf(plan, text) {
  if (plan.name !== "release-notes") return [];
  const lines = text.split("\n");
  const at = (word) => lines.findIndex((line) => line.includes(word)) + 1;
  const finding = (severity, word, message, help) => ({ code: "lint", severity, message, file: `compositions/${plan.name}.yaml`, line: at(word), column: (lines[at(word) - 1] ?? "").indexOf(word) + 1, end_line: at(word), end_column: (lines[at(word) - 1] ?? "").indexOf(word) + 1 + word.length, help, url: "" });
  return [finding("warning", "slack:post_message", "slack is down: its definition is from 09:12", "start the server, or remove the step"), finding("error", "github:create_tag", "github:create_tag has no parameter `repo`", "rename it to `owner`")];
}

const tests = (plan) => (plan.name === "hello" ? [] : [{ name: "it works", file: `${plan.name}.test.yaml` }, { name: "what was written is rolled back", file: `${plan.name}.test.yaml` }]);

function report(plan, only) {
  const kept = tests(plan).filter((test) => !only || test.name === only);
  const results = kept.map((test, i) => ({ name: test.name, line: 3 + i * 20, ok: test.name === "it works", status: "success", duration_ms: 12 + i, misses: test.name === "it works" ? [] : [{ line: 31, column: 9, message: "the call of `github:create_release` has other arguments", help: null, expected: { tag: "v1" }, actual: { tag: "1" } }] }));
  const passed = results.filter((one) => one.ok).length;
  return { ok: passed === results.length, passed, failed: results.length - passed, broken: 0, files: [{ file: `${plan.name}.test.yaml`, diagnostics: [], tests: results }] };
}

export function dryRun(plan, input) {
  const flat = (steps, prefix = "") => steps.flatMap((step) => [[prefix + step.id, step], ...(step.bodies ?? []).flatMap((body) => flat(body.steps, `${prefix}${step.id}/`))]);
  const steps = flat(plan.steps).map(([id, step]) => ({ id, kind: step.kind, tool: step.tool, status: "dry_run", attempts: 0, input: step.tool ? { repo: input?.repo ?? "{{ unknown }}", limit: 50 } : null, output: step.effect === "reads" && step.tool ? { items: [1, 2] } : null, error: null, reason: null, started_at: null, completed_at: null, duration_ms: 0, would: { effect: step.effect, rollback: step.rollback, confirms: step.confirms, called: false } }));
  return { success: true, results: {}, duration: 0, steps_executed: 0, run_id: "dry", name: plan.name, status: "dry_run", output: null, warnings: ["slack is down"], steps, started_at: null, completed_at: null, duration_ms: 3, chain_id: "" };
}

export function compositions(method, path, body, plans) {
  if (path === "compositions") return { compositions: Object.values(plans).map(summaryOf), broken };
  const match = /^compositions\/([^/]+)(\/test)?$/.exec(path);
  const plan = match && plans[decodeURIComponent(match[1])];
  if (!plan) return null;
  if (match[2]) return report(plan, body.test);
  const { text, spans } = source({ plan, name: plan.name });
  return { summary: summaryOf(plan), text, file: `compositions/${plan.name}.yaml`, format: "yaml", dialect: "composition", spans, plan, findings: findingsOf(plan, text), tests: tests(plan) };
}
