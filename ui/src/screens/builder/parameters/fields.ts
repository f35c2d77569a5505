// The fields of a step beside its tool's parameters, by its kind. Their schemas are those of the composition's own schema,
// so that a new field needs no second description.
import composition from "../../../../../schema/composition.schema.json";
import { isSchema, own, type Key, type Schema } from "@/parts/form/schema";
import { shapeOf, type Shape } from "@/parts/form/shape";

export interface StepField {
  keys: Key[];
  name: string;
  schema: Schema;
  required: boolean;
  /** How it is drawn: a condition and an expression have no other form; ids of steps are chosen. */
  as?: "condition" | "expression" | "steps";
}
export interface FieldGroup {
  name: string;
  fields: StepField[];
}

/** What `$ref` of a field refers into. */
export const ROOT: Schema = { $defs: composition.$defs };
const KINDS = ["tool", "parallel", "loop", "repeat", "choose", "set", "approve", "wait", "expand"] as const;
export type StepKind = (typeof KINDS)[number];

export const kindOf = (step: Record<string, unknown>): StepKind | null => KINDS.find((kind) => Object.hasOwn(step, kind)) ?? null;

function property(of: string, name: string): Schema {
  const found = own(own(own(composition.$defs, of), "properties"), name);
  return isSchema(found) ? found : true;
}
const isRequired = (of: string, name: string): boolean => {
  const required = own(own(composition.$defs, of), "required");
  return Array.isArray(required) && required.includes(name);
};

/** `of` names the definition that a field stands in. */
function field(of: string, keys: Key[], as?: StepField["as"]): StepField {
  const name = String(keys.at(-1));
  return { keys, name, schema: property(of, name), required: isRequired(of, name), ...(as ? { as } : {}) };
}

const many = (of: string, before: Key[], names: string[]): StepField[] => names.map((name) => field(of, [...before, name]));

function ownFields(step: Record<string, unknown>): StepField[] {
  switch (kindOf(step)) {
    case "loop":
      return [field("loop", ["loop", "over"], "expression"), ...many("loop", ["loop"], ["as", "max_concurrency", "max_iterations", "on_item_failure", "output"])];
    case "repeat":
      return [field("repeat", ["repeat", "until"], "condition"), ...many("repeat", ["repeat"], ["max_iterations", "delay"])];
    case "choose":
      return cases(step.choose);
    case "parallel":
      return many("step", [], ["wait_for"]);
    case "approve":
      return many("approve", ["approve"], ["message", "timeout", "on_timeout", "schema"]);
    case "set":
      return [{ ...field("step", ["set"]), required: true }];
    case "wait":
      return [{ ...field("step", ["wait"]), required: true }];
    case "expand":
      return [{ ...field("step", ["expand"], "expression"), required: true }];
    default:
      return [];
  }
}

/** The condition of each case; its steps are in the graph. */
function cases(choose: unknown): StepField[] {
  if (!Array.isArray(choose)) return [];
  return choose.flatMap((one: unknown, i): StepField[] => (own(one, "when") === undefined && own(one, "otherwise") !== undefined ? [] : [{ ...field("case", ["choose", i, "when"], "condition"), name: `case ${i + 1}`, required: true }]));
}

const CALL_FIELDS = ["fallback", "on_success", "idempotent", "probe", "sensitive"];

/** The groups in the order of the form; those of calls only for steps that call a tool. */
export function fieldGroups(step: Record<string, unknown>): FieldGroup[] {
  const calls = Object.hasOwn(step, "tool");
  const own = ownFields(step);
  return [
    ...(own.length > 0 ? [{ name: "What it does", fields: own }] : []),
    { name: "When", fields: [field("step", ["when"], "condition"), field("step", ["depends_on"], "steps"), field("step", ["output_key"])] },
    { name: "Time and retries", fields: many("step", [], calls ? ["timeout", "retry"] : ["timeout"]) },
    { name: "Failure and rollback", fields: [...many("step", [], calls ? ["on_failure", "rollback"] : ["on_failure"]), ...(calls ? [field("step", ["success_when"], "condition"), field("step", ["fail_when"], "condition")] : [])] },
    ...(calls ? [{ name: "More", fields: many("step", [], CALL_FIELDS) }] : []),
  ];
}

/** The engine evaluates the fields that the schema leaves free, such as a message; names, limits and times are fixed. */
export const takesExpression = (shape: Shape, root: Schema): boolean => shape.kind === "raw" || (shape.kind === "choice" && shape.options.some((one) => shapeOf(one.schema, root).kind === "raw"));

/** Where the tool's arguments stand: chains may call them `inputs`. */
export const parametersKey = (step: Record<string, unknown>): string => (Object.hasOwn(step, "inputs") && !Object.hasOwn(step, "parameters") ? "inputs" : "parameters");
