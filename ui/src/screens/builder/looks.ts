// What the graph shows on its nodes beside the plan: findings, times, ghosts, and the states of a run.
import type { PlanStepView, Tool } from "@/api/types";
import type { Look } from "@/graph/looks";
import { plural } from "@/lib/format";
import { milliseconds, observedOf } from "../tools/rows";
import type { Finding, StepSpan } from "./model";
import { stepAt } from "./steps";

export interface LooksInput {
  findings: readonly Finding[];
  spans: readonly StepSpan[];
  paths: ReadonlyMap<string, string>;
  ghosts: ReadonlySet<string>;
  tools: readonly Tool[];
  /** Names of servers that are down. */
  down: ReadonlySet<string>;
  steps: readonly PlanStepView[];
  run: ReadonlyMap<string, Look> | null;
  /** Ids of steps with a pinned output. */
  pinned: { has: (step: string) => boolean };
}

export function looksOf({ findings, spans, paths, ghosts, tools, down, steps, run, pinned }: LooksInput): Map<string, Look> {
  const looks = new Map<string, Look>(run ?? []);
  const add = (path: string, more: Look) => looks.set(path, { ...looks.get(path), ...more });
  const byId = new Map(tools.map((tool) => [tool.id, tool]));
  const visit = (list: readonly PlanStepView[], prefix: string) => {
    for (const step of list) {
      const path = prefix + step.id;
      const when = step.tool ? factOf(step.tool, byId, down) : null;
      if (when && !looks.get(path)?.when) add(path, { when });
      if (pinned.has(step.id)) add(path, { pin: true });
      for (const body of step.bodies ?? []) visit(body.steps, `${path}/`);
    }
  };
  visit(steps, "");
  for (const [step, { errors, others }] of counts(findings, spans)) {
    const path = paths.get(step);
    if (path) add(path, { corner: errors > 0 ? { text: plural(errors, "error"), tone: "failed", icon: "s-failed" } : { text: plural(others, "warning"), tone: "waiting", icon: "i-warn" } });
  }
  for (const path of ghosts) looks.set(path, { ghost: true, when: "removed" });
  return looks;
}

/** At the right of a step's head: how long its tool takes, or that its server is down. */
function factOf(tool: string, byId: ReadonlyMap<string, Tool>, down: ReadonlySet<string>): string | null {
  const at = tool.indexOf(":");
  if (at > 0 && down.has(tool.slice(0, at))) return "server down";
  const known = byId.get(tool);
  const p95 = known ? (observedOf(known)?.p95 ?? null) : null;
  return p95 === null ? null : `p95 ${milliseconds(p95)}`;
}

function counts(findings: readonly Finding[], spans: readonly StepSpan[]) {
  const out = new Map<string, { errors: number; others: number }>();
  for (const one of findings) {
    const step = stepAt(spans, one.start);
    if (!step) continue;
    const count = out.get(step) ?? { errors: 0, others: 0 };
    if (one.severity === "error") count.errors++;
    else count.others++;
    out.set(step, count);
  }
  return out;
}

export interface EdgeLabel {
  from: string;
  to: string;
  words: string;
}

const REFERENCE = /([A-Za-z_][\w-]*)[ \t]*:[ \t]*(?:"[^"\n]*?|'[^'\n]*?|[^\n{,]*?)\{\{\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*|\[\d+\])+)/g;

/** Which field of a step goes into which parameter of another one: `items → content`. From the text of the step. */
export function edgeLabels(text: string, spans: readonly StepSpan[], steps: readonly PlanStepView[]): EdgeLabel[] {
  const out: EdgeLabel[] = [];
  const visit = (list: readonly PlanStepView[]) => {
    for (const step of list) {
      const span = spans.find((one) => one.step === step.id);
      if (span) {
        const needs = new Set(step.needs);
        const found = new Map<string, string[]>();
        for (const [, field = "", from = "", path = ""] of text.slice(span.start, span.end).matchAll(REFERENCE)) {
          if (needs.has(from)) found.set(from, [...(found.get(from) ?? []), `${path.replace(/^\./, "")} → ${field}`]);
        }
        for (const [from, words] of found) out.push({ from, to: step.id, words: words.length > 1 ? `${words[0]}, …` : (words[0] ?? "") });
      }
      if (!step.tool) for (const body of step.bodies ?? []) visit(body.steps);
    }
  };
  visit(steps);
  return out;
}
