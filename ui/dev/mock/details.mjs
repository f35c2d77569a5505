// Step details, sources, comparisons and other answers about one run.
import { begun, stepState, stepView, summary } from "./runs.mjs";
import { at, templateOf } from "./values.mjs";

const iso = (ms) => (ms == null || !Number.isFinite(ms) ? null : new Date(ms).toISOString());
const find = (run, path) => run.sim.steps.find((s) => s.path === path);

export function stepDetail(run, path, now) {
  const record = find(run, path);
  if (!record) return null;
  const step = stepView(run, record, now);
  const attempts = record.attempts.filter((a) => a.start <= now).map((a) => {
    const open = a.end > now;
    return { step: path, tool: record.plan.tool, started_at: iso(a.start), duration_ms: open ? null : Math.round(a.end - a.start), outcome: open ? "open" : a.ok ? "done" : a.ok === null ? "lost" : "failed", ...(a.ok || open ? {} : { code: "tool-error", message: a.error ?? "no answer" }), ...(a.pause ? { pause_ms: a.pause } : {}) };
  });
  const back = record.rollback;
  const events = [];
  if (back && back.start <= now) events.push({ at: iso(back.start), what: "called", arguments: { id: 291180447 } });
  if (back && back.end <= now) events.push({ at: iso(back.end), what: back.ok ? "rolled_back" : "failed", ...(back.ok ? {} : { message: "409 from github: the tag moved" }) });
  return {
    step, template: templateOf(record), source: { composition: run.name, file: `compositions/${run.name}.yaml`, ...spanOf(run, path) }, attempts,
    decisions: record.plan.confirms || path === "release" ? [{ at: iso(record.start), by: "mara", what: "allowed this call in the inbox" }] : [],
    rollback: { planned: record.plan.rollback, events },
  };
}

export function steps(run, query, now) {
  const parent = query.get("parent");
  const status = query.getAll("status");
  const deep = query.get("deep") === "true";
  const inside = (path) => {
    if (!parent) return deep || !path.includes("/");
    const rest = path.startsWith(parent) ? path.slice(parent.length) : "";
    return (deep ? /^(\[\d+\])?\// : /^(\[\d+\])?\/[^/]+$/).test(rest);
  };
  const under = begun(run, now).filter((s) => inside(s.path));
  const failed = under.filter((s) => stepState(run, s, now) === "failed");
  const groups = new Map();
  for (const s of failed) {
    const group = groups.get(s.error.message) ?? { code: s.error.code, message: s.error.message, count: 0, first: s.path };
    group.count++;
    groups.set(s.error.message, group);
  }
  const kept = status.length ? under.filter((s) => status.includes(stepState(run, s, now))) : under;
  const offset = Number(query.get("offset") ?? 0);
  const limit = Math.min(Number(query.get("limit") ?? 100), 500);
  return { steps: kept.slice(offset, offset + limit).map((s) => stepView(run, s, now)), total: kept.length, counts: Object.fromEntries(["success", "failed", "running", "pending", "skipped"].map((name) => [name, under.filter((s) => stepState(run, s, now) === name).length])), failed_groups: [...groups.values()] };
}

export function value(run, query, now) {
  const record = find(run, query.get("step")) ?? run.sim.steps[0];
  const view = stepView(run, record, now, true);
  const whole = at(view[query.get("part") ?? "output"], query.get("pointer") ?? "");
  if (query.get("download") === "true") return whole;
  const offset = Number(query.get("offset") ?? 0);
  const limit = Number(query.get("limit") ?? 100);
  const length = typeof whole === "string" || Array.isArray(whole) ? whole.length : Object.keys(whole ?? {}).length;
  const many = typeof whole === "string" ? limit * 100 : limit;
  const page = typeof whole === "string" || Array.isArray(whole) ? whole.slice(offset, offset + many) : Object.fromEntries(Object.entries(whole ?? {}).slice(offset, offset + limit));
  return { value: page, offset, length, bytes: JSON.stringify(whole)?.length ?? 0, next: offset + many < length ? offset + many : null };
}

export function source(run) {
  const lines = [`# ${run.plan.description}`, `name: ${run.name}`, "steps:"];
  const spans = [];
  const write = (list, indent, prefix) => {
    for (const step of list) {
      const line = lines.length + 1;
      lines.push(`${indent}- id: ${step.id}`);
      if (step.tool) lines.push(`${indent}  tool: ${step.tool}`, `${indent}  parameters:`, `${indent}    repo: "{{ input.repo }}"`);
      for (const body of step.bodies ?? []) {
        if (step.tool) continue;
        lines.push(`${indent}  # ${body.label}`, `${indent}  ${step.kind}:`);
        write(body.steps, `${indent}    `, `${prefix}${step.id}/`);
      }
      spans.push({ step: prefix + step.id, line, column: indent.length + 1, end_line: lines.length, end_column: 60 });
    }
  };
  write(run.plan.steps, "  ", "");
  return { text: `${lines.join("\n")}\n`, file: `${run.name}.yaml`, format: "yaml", current: true, spans };
}

function spanOf(run, path) {
  const plain = path.replace(/\[\d+\]/g, "");
  const span = source(run).spans.find((one) => one.step === plain);
  return span ? { line: span.line + 1, column: span.column, end_line: span.line + 1, end_column: span.end_column } : { line: 1, column: 1, end_line: 1, end_column: 1 };
}

export function compare(left, right, now) {
  const of = (run) => new Map(run.sim.steps.map((s) => [s.path, stepView(run, s, now)]));
  const [a, b] = [of(left), of(right)];
  const ids = [...new Set([...a.keys(), ...b.keys()])].slice(0, 2000);
  const side = (s) => (s ? { status: s.status, duration_ms: s.duration_ms, attempts: s.attempts } : null);
  const same = (x, y) => (x === undefined || y === undefined ? "absent" : JSON.stringify(x) === JSON.stringify(y) ? "same" : "differs");
  return {
    left: summary(left, now), right: summary(right, now), same_plan: left.plan === right.plan, output: "same", differences: [], steps_left_out: 0,
    steps: ids.map((id) => {
      const [l, r] = [a.get(id), b.get(id)];
      const output = same(l?.output, r?.output);
      return { id, left: side(l), right: side(r), output, input: same(l?.input, r?.input), differences: output === "differs" ? [{ part: "output", pointer: "/value", left: l.output, right: r.output }] : [] };
    }),
  };
}
