// What a step may refer to: the input, the values of steps that can run before it, and the items of loops around it.
// A value is what was pinned, else what the last run had, else what the schema says.
import type { PlanStepView, RunView, Tool } from "@/api/types";
import { lastId } from "@/lib/path";
import { skeleton } from "./skeleton";

export type Origin = "pinned" | "run" | "schema" | "none";

export interface Source {
  /** The name in expressions. */
  name: string;
  /** The step whose value it is; null for the input and for items of loops. */
  step: string | null;
  origin: Origin;
  /** With `schema`: words for types in place of values. */
  value: unknown;
  /** The path of the step in the run, to load what its value leaves out. */
  path: string | null;
}

export interface Known {
  steps: readonly PlanStepView[];
  /** JSON Schema of the input. */
  inputs: unknown;
  run: Pick<RunView, "input" | "steps"> | null;
  tools: readonly Tool[];
  /** Values of steps that tests or mocks hold, by step. */
  pinned: ReadonlyMap<string, unknown>;
  /** The name of a loop's item, by the loop's id. */
  items: (loop: string) => string;
}

export function sources(known: Known, at: string): Source[] {
  const way = wayTo(known.steps, at) ?? [{ list: known.steps, inside: null }];
  const out: Source[] = [inputOf(known)];
  for (const { inside } of way) if (inside && inside.kind === "loop") out.push({ name: known.items(inside.id), step: null, origin: "none", value: "any", path: null });
  const holders = new Set(way.flatMap(({ inside }) => (inside ? [inside.id] : [])));
  for (const { list } of way) {
    const target = list.find((step) => step.id === at || holders.has(step.id));
    const later = target ? needing(list, target.id) : new Set<string>();
    for (const step of list) if (step.id !== target?.id && !later.has(step.id)) out.push(stepSource(known, step));
  }
  return out;
}

interface Level {
  list: readonly PlanStepView[];
  /** The step whose body the list is. */
  inside: PlanStepView | null;
}

/** The lists around a step, the outermost first. */
function wayTo(list: readonly PlanStepView[], id: string, inside: PlanStepView | null = null): Level[] | null {
  if (list.some((step) => step.id === id)) return [{ list, inside }];
  for (const step of list) {
    if (step.tool) continue;
    for (const body of step.bodies ?? []) {
      const found = wayTo(body.steps, id, step);
      if (found) return [{ list, inside }, ...found];
    }
  }
  return null;
}

/** Steps that run after a step, since they need it. */
function needing(list: readonly PlanStepView[], id: string): Set<string> {
  const users = new Map<string, string[]>();
  for (const step of list) for (const need of step.needs) users.set(need, [...(users.get(need) ?? []), step.id]);
  const out = new Set<string>();
  const queue = [id];
  for (let one = queue.pop(); one !== undefined; one = queue.pop()) {
    for (const user of users.get(one) ?? []) {
      if (out.has(user)) continue;
      out.add(user);
      queue.push(user);
    }
  }
  return out;
}

function inputOf({ run, inputs }: Known): Source {
  const given = run?.input;
  if (given !== null && given !== undefined) return { name: "input", step: null, origin: "run", value: given, path: null };
  return { name: "input", step: null, origin: inputs ? "schema" : "none", value: inputs ? skeleton(inputs) : "any", path: null };
}

function stepSource({ run, tools, pinned }: Known, step: PlanStepView): Source {
  const base = { name: step.output_key ?? step.id, step: step.id };
  if (pinned.has(step.id)) return { ...base, origin: "pinned", value: pinned.get(step.id), path: null };
  const ran = run?.steps.find((one) => lastId(one.id) === step.id && one.status === "success" && one.output !== null);
  if (ran) return { ...base, origin: "run", value: ran.output, path: ran.id };
  const schema = tools.find((tool) => tool.id === step.tool)?.output_schema;
  return schema ? { ...base, origin: "schema", value: skeleton(schema), path: null } : { ...base, origin: "none", value: "any", path: null };
}
