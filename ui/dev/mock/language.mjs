// A small stand-in for the language routes: it reads block YAML by indentation, and knows the edits that a person
// tries first. The real service is in the server.
import { createHash } from "node:crypto";
import { source } from "./details.mjs";
import { plans } from "./plans.mjs";
import { tools } from "./tools.mjs";

const ok = (body, status = 200) => ({ status, body });
const problem = (status, detail, more = {}) => ({ status, body: { type: "urn:segue:error:x", title: "Refused", status, detail, code: "x", ...more } });
const hashOf = (text) => createHash("sha256").update(text).digest("hex");
const indentOf = (line) => line.length - line.trimStart().length;
const KINDS = ["tool", "loop", "parallel", "choose", "repeat", "set", "approve", "wait", "expand"];

const files = new Map(Object.values(plans).map((plan) => [`compositions/${plan.name}.yaml`, source({ plan, name: plan.name }).text]));
files.set("compositions/weekly-digest.yaml", `# What was merged, folded to one screen, then released
name: weekly-digest
description: Publishes what was merged since the last release
input:
  type: object
  required: [repo, version]
error_handling: { rollback_on_failure: true, max_retries: 2 }
steps:
  - id: pulls
    tool: github:search_pull_requests
    parameters:
      repo: "{{ input.repo }}"

  - id: each                    # one at a time
    loop:
      over: "{{ pulls.items }}"
      steps:
        - id: read
          tool: github:get_pull_request
          parameters:
            repo: "{{ item.repo }}"

  - id: release
    tool: github:create_release
    parameters:
      reppo: "{{ input.repo }}"
      limit: "{{ pulls.total }}"

  - id: announce
    tool: slack:post_message
    depends_on: release
    parameters:
      repo: "{{ release.html_url }}"
output: "{{ release.html_url }}"
`);

/** Lines with their offsets, and a step for each `- id:`. */
function read(text) {
  let at = 0;
  const lines = text.split("\n").map((line) => ({ line, at, end: (at += line.length + 1) - 1 }));
  const starts = lines.flatMap(({ line }, i) => {
    const match = /^(\s*)- (?:\{ )?id: ([\w$-]+)/.exec(line);
    return match ? [{ id: match[2], i, indent: match[1].length }] : [];
  });
  const steps = starts.map(({ id, i, indent }) => {
    let last = i;
    for (let j = i + 1; j < lines.length; j++) {
      if (!lines[j].line.trim()) continue;
      if (indentOf(lines[j].line) <= indent) break;
      last = j;
    }
    const own = lines.slice(i, last + 1).map((one) => one.line);
    const field = (name) => own.map((line) => new RegExp(`^\\s{${indent + 2}}${name}:\\s*(.*)$|[{,-] ?${name}: ([^,}]+)`).exec(line)).find(Boolean);
    const kind = KINDS.find((one) => field(one)) ?? "tool";
    const depends = (field("depends_on")?.[1] ?? "").replace(/[[\]]/g, "").split(/,\s*/).filter(Boolean);
    return { id, first: i, last, indent, own, kind, depends, tool: kind === "tool" ? (field("tool")?.[1] ?? field("tool")?.[2] ?? null) : null };
  });
  return { lines, steps };
}

const parentOf = (steps, step) => steps.filter((one) => one.first < step.first && one.last >= step.last && one.indent < step.indent).at(-1);

function viewOf(all, step) {
  const inner = all.filter((one) => parentOf(all, one) === step);
  const ids = new Set(all.filter((one) => parentOf(all, one) === parentOf(all, step)).map((one) => one.id));
  const words = inner.length > 0 ? step.own.slice(0, 4).join(" ") : step.own.join(" ");
  const read = [...words.matchAll(/\{\{[^}]*\}\}/g)].flatMap((match) => [...match[0].matchAll(/[A-Za-z_]\w*/g)].map((one) => one[0])).filter((id) => ids.has(id) && id !== step.id);
  const known = tools.find((one) => one.id === step.tool);
  const over = /over: "?(?:\{\{ )?([^"}]*)/.exec(words)?.[1]?.trim();
  return {
    id: step.id, kind: step.kind, tool: step.tool, needs: [...new Set([...read, ...step.depends])], depends_on: step.depends.filter((id) => !read.includes(id)),
    effect: known?.effect ?? (step.tool ? "unknown" : inner.length ? "reads" : "none"), confirms: false,
    rollback: !step.tool ? { kind: inner.length ? "inside" : "not_needed" } : !known ? { kind: "unknown" } : known.effect === "reads" ? { kind: "not_needed" } : /slack/.test(step.tool) ? { kind: "impossible", reason: "readers may have seen it" } : { kind: "call", tool: "github:delete_release" },
    bodies: ["loop", "repeat", "parallel", "choose"].includes(step.kind) ? [{ label: over ? `each ${over}` : "", steps: inner.map((one) => viewOf(all, one)) }] : [],
  };
}

function findingsOf(text, { lines, steps }) {
  const found = [];
  const add = (severity, code, line, word, message, help) => {
    const { line: whole, at } = lines[line];
    const from = Math.max(0, whole.indexOf(word));
    found.push({ code, severity, message, file: "", line: line + 1, column: from + 1, end_line: line + 1, end_column: from + 1 + word.length, help, url: "", start: at + from, end: at + from + word.length });
  };
  for (const step of steps) {
    const known = tools.find((one) => one.id === step.tool);
    if (step.kind === "tool" && !known) add("error", "unknown-tool", step.first, step.id, `Tool not found in registry: ${step.tool ?? "none"}`, null);
    if (!known) continue;
    const names = Object.keys(known.input_schema.properties ?? {});
    step.own.forEach((line, i) => {
      const name = /^\s+(\w+): /.exec(line)?.[1];
      if (name && indentOf(line) === step.indent + 4 && names.length && !names.includes(name)) add("error", "unknown-parameter", step.first + i, name, `\`${step.tool}\` has no parameter \`${name}\``, `did you mean \`${names[0]}\`?`);
    });
    if (step.tool.startsWith("slack:")) add("warning", "tool-unavailable", step.first, step.id, "slack is down: its definition is from 09:12", "start the server");
  }
  return found;
}

function analyze({ text }) {
  const parsed = read(text);
  const { lines, steps } = parsed;
  const findings = findingsOf(text, parsed);
  const valid = !findings.some((one) => one.severity === "error");
  const views = steps.filter((one) => !parentOf(steps, one)).map((one) => viewOf(steps, one));
  const name = /^name: (\S+)/m.exec(text)?.[1] ?? "x";
  const plan = valid ? { hash: "0".repeat(64), name, description: "", dialect: "composition", atomic: false, effect: "writes", inputs: { type: "object", properties: { repo: { type: "string" } } }, output: {}, steps: views, together: [], longest_path: [], tools: {}, error_handling: { failure_strategy: "fail_fast", rollback_on_failure: true, max_retries: 2 } } : null;
  const spans = steps.map((one) => ({ step: one.id, start: lines[one.first].at + one.indent, end: lines[one.last].end, line: one.first + 1, column: 1, end_line: one.last + 1, end_column: 1 }));
  return { hash: hashOf(text), valid, findings, steps: views, spans, outline: [], tokens: [], links: [], plan, inputs: plan?.inputs };
}

function yaml(value, indent) {
  const pad = " ".repeat(indent);
  if (Array.isArray(value)) return value.length ? value.map((one) => `\n${pad}- ${yaml(one, indent + 2).trimStart()}`).join("") : " []";
  if (typeof value === "object" && value !== null) return Object.keys(value).length ? Object.entries(value).map(([key, one]) => `\n${pad}${key}:${yaml(one, indent + 2)}`).join("") : " {}";
  return ` ${/^[\w:./-]+$/.test(String(value)) ? value : JSON.stringify(value)}`;
}
const written = (step, indent) => `${" ".repeat(indent)}- ${yaml(step, indent + 2).trimStart()}\n`;

function insertion(text, { lines, steps }, place) {
  const other = steps.find((one) => one.id === place.step);
  if (place.at === "before") return { at: lines[other.first].at, indent: other.indent };
  if (place.at === "after") return { at: Math.min(lines[other.last].end + 1, text.length), indent: other.indent };
  const inner = steps.filter((one) => parentOf(steps, one) === other);
  const near = place.at === "first_in" ? inner[0] : inner.at(-1);
  if (near) return insertion(text, { lines, steps }, { at: place.at === "first_in" ? "before" : "after", step: near.id });
  const range = other ? [other.first, other.last] : [0, lines.length - 1];
  const i = lines.findIndex(({ line }, at) => at >= range[0] && at <= range[1] && /^\s*(steps|parallel|loop):\s*(\[\])?\s*$/.test(line) && (/steps/.test(line) || !lines.slice(at, range[1] + 1).some((one) => /steps:/.test(one.line))));
  const { line, at, end } = lines[i];
  const head = line.replace(/\s*\[\]\s*$/, "");
  return { at: at + head.length, upTo: end, indent: indentOf(line) + 2, prefix: "\n", trim: true };
}

function edited(text, edit) {
  const parsed = read(text);
  const { lines, steps } = parsed;
  const step = steps.find((one) => one.id === edit.step);
  const whole = step && { start: lines[step.first].at, end: Math.min(lines[step.last].end + 1, text.length) };
  const put = (place, textOf) => {
    const { at, upTo = at, indent, prefix = "", trim } = insertion(text, parsed, place);
    const body = prefix + textOf(indent);
    return { start: at, end: upTo, text: trim ? body.trimEnd() : body };
  };
  const sorted = (list) => list.sort((a, b) => a.start - b.start);
  switch (edit.kind) {
    case "add_step":
      return [put(edit.place, (indent) => written(edit.step, indent))];
    case "remove_step":
      return [{ ...whole, text: "" }];
    case "move_step":
      return sorted([{ ...whole, text: "" }, put(edit.place, (indent) => step.own.map((line) => (line.trim() ? " ".repeat(indent) + line.slice(step.indent) : line)).join("\n") + "\n")]);
    case "duplicate_step":
      return [{ start: whole.end, end: whole.end, text: `${step.own.join("\n").replace(`id: ${step.id}`, `id: ${edit.id ?? `${step.id}_2`}`)}\n` }];
    case "rename_step":
      return [...text.matchAll(new RegExp(`(?<=id: )${edit.step}(?=[\\s,])|(?<=\\{\\{[^}\\n]*)\\b${edit.step}\\b(?=[^\\n]*\\}\\})|(?<=depends_on:[^\\n]*)\\b${edit.step}\\b`, "g"))].map((match) => ({ start: match.index, end: match.index + edit.step.length, text: edit.to }));
    case "connect": {
      const to = steps.find((one) => one.id === edit.to);
      if (!edit.reference) return [{ start: lines[to.first].end, end: lines[to.first].end, text: `\n${" ".repeat(to.indent + 2)}depends_on: ${edit.from}` }];
      const [, key] = /([^/]+)$/.exec(edit.reference.field);
      return edited(text, { kind: "set_field", step: edit.to, field: `/parameters/${key}`, value: `{{ ${edit.from}${edit.reference.path ? `.${edit.reference.path}` : ""} }}` });
    }
    case "set_field": {
      const key = edit.field.split("/").at(-1);
      const i = step.own.findIndex((line) => new RegExp(`^\\s{${step.indent + 4}}${key}:`).test(line));
      const value = typeof edit.value === "object" ? JSON.stringify(edit.value) : yaml(edit.value, 0).trim();
      if (i >= 0) {
        const { line, at, end } = lines[step.first + i];
        return [{ start: at + line.indexOf(":") + 2, end, text: value }];
      }
      const p = step.own.findIndex((line) => /^\s*parameters:/.test(line));
      const { line, at, end } = lines[step.first + p];
      return [{ start: at + line.indexOf(":") + 1, end: /\{\}/.test(line) ? end : at + line.indexOf(":") + 1, text: `\n${" ".repeat(step.indent + 4)}${key}: ${value}` }];
    }
    default:
      return null;
  }
}

function complete({ text, at }) {
  const word = /[\w:]*$/.exec(text.slice(0, at))[0];
  const { steps } = read(text);
  const line = text.slice(text.lastIndexOf("\n", at - 1) + 1, at);
  const inside = line.lastIndexOf("{{") > line.lastIndexOf("}}");
  const items = inside ? ["input", ...steps.map((one) => one.id)].map((label) => ({ label, kind: "step", detail: "object" })) : /tool:\s*[\w:]*$/.test(line) ? tools.map((one) => ({ label: one.id, kind: "tool", detail: one.effect, documentation: one.description })) : ["id", "tool", "parameters", "depends_on", "when", "retry_count"].map((label) => ({ label, kind: "field" }));
  return { items: items.map((one) => ({ required: false, ...one, start: at - word.length, end: at, text: one.label })) };
}

function actions({ text, start, end }) {
  const found = analyze({ text }).findings.filter((one) => one.start < end && one.end > start && one.help?.startsWith("did you mean"));
  return { actions: found.map((one) => ({ title: `Rename to ${/`(.*)`/.exec(one.help)[1]}`, code: one.code, preferred: true, edits: [{ start: one.start, end: one.end, text: /`(.*)`/.exec(one.help)[1] }] })) };
}

/** One template: a name that no step has fails, everything else is a text. */
function rendered({ text, template }) {
  const names = ["input", "item", "true", "false", "steps", ...read(text).steps.map((one) => one.id)];
  const used = /^\{\{\s*([A-Za-z_]\w*)/.exec(template)?.[1];
  if (used && !names.includes(used)) return { fields: [{ field: "", error: `there is no \`${used}\`` }] };
  return { fields: [{ field: "", type: "string", value: "site" }] };
}

/** Steps by their ids; a changed step says which of its fields differ. */
function compare({ before, after }) {
  const fields = (one) => new Map(one.own.flatMap((line) => (/^\s*(\w+): ?(.*)$/.exec(line) ? [[RegExp.$1, line]] : [])));
  const [old, now] = [before, after].map((text) => new Map(read(text).steps.map((one) => [one.id, fields(one)])));
  const steps = [];
  for (const [step, mine] of now) {
    const was = old.get(step);
    if (!was) steps.push({ step, change: "added" });
    else if ([...mine.values()].join("\n") !== [...was.values()].join("\n")) steps.push({ step, change: "changed", fields: [...mine.keys()].filter((key) => was.get(key) !== mine.get(key)) });
  }
  for (const step of old.keys()) if (!now.has(step)) steps.push({ step, change: "removed" });
  const required = (text) => /required: \[(.*)\]/.exec(text)?.[1].split(", ") ?? [];
  const added = required(after).filter((name) => name && !required(before).includes(name));
  return { steps, interface: added.map((name) => ({ breaking: true, message: `the input \`${name}\` is required now` })) };
}

function preview({ text, step, template }) {
  if (template !== undefined) return rendered({ text, template });
  const found = read(text).steps.find((one) => one.id === step);
  const lines = (found?.own ?? []).filter((line) => indentOf(line) === found.indent + 4);
  return { fields: lines.flatMap((line) => (/^\s*(\w+): (.*)$/.exec(line) ? [{ field: `/${RegExp.$1}`, type: "string", ...(/\{\{/.test(RegExp.$2) ? { value: "site" } : { value: RegExp.$2 }) }] : [])) };
}

function language(path, body) {
  if (path === "analyze") return ok(analyze(body));
  if (path === "complete") return ok(complete(body));
  if (path === "hover") return ok(null);
  if (path === "actions") return ok(actions(body));
  if (path === "preview") return ok(preview(body));
  if (path === "compare") return ok(compare(body));
  if (path !== "edit") return problem(404, "no such route");
  const edits = edited(body.text, body.edit);
  return edits ? ok({ edits }) : problem(422, `the mock server does not know the edit ${body.edit.kind}`);
}

function file(method, path, body, headers) {
  const text = files.get(path);
  const hash = text === undefined ? null : hashOf(text);
  if (method === "GET") return text === undefined ? problem(404, `no file \`${path}\``) : ok({ path, text, hash, kind: "composition" });
  const wanted = headers["if-match"]?.replaceAll('"', "");
  if (wanted ? wanted !== hash : hash !== null) return problem(412, "the file changed", { code: "conflict", text, hash });
  if (method === "DELETE") return files.delete(path), ok(null, 204);
  if (method === "PUT") return files.set(path, body.text), ok({ path, hash: hashOf(body.text), kind: "composition" });
  files.set(body.to, text);
  files.delete(path);
  return ok({ path: body.to, hash, kind: "composition" });
}

export function builder(method, path, body, headers) {
  const route = /^language\/(\w+)$/.exec(path);
  if (route) return language(route[1], body);
  if (path === "files") return ok({ writable: true, truncated: false, roots: [{ folder: "compositions", pattern: "compositions/*.yaml", templates: false }], files: [...files].map(([one, text]) => ({ path: one, hash: hashOf(text), kind: "composition", composition: one.replace(/^.*\/|\.yaml$/g, "") })) });
  const match = /^files\/([^/]+)(\/rename)?$/.exec(path);
  return match ? file(match[2] ? "RENAME" : method, decodeURIComponent(match[1]), body, headers) : null;
}
