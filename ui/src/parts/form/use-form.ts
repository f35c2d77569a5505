import { createContext, use, useCallback, useMemo, useState, type ComponentType } from "react";
import { pointer } from "@/lib/expression";
import { isSchema, type Key, type Schema } from "./schema";
import { shapeOf, type Shape } from "./shape";
import { issuesOf, start, type FormState } from "./state";
import { validate, type Issue } from "./validate";

export interface Form {
  schema: Schema;
  shape: Shape;
  state: FormState;
  issues: Issue[];
  change: (next: (state: FormState) => FormState) => void;
  /** The value when it fits, else null, and then every issue is shown. */
  submit: () => { value: unknown } | null;
  /** Begins anew, with this value or the defaults. */
  reset: (value?: unknown) => void;
  /** Set where a text may be an expression: the fields of a step. */
  templates?: Templates;
}

export interface TemplateFieldProps {
  keys: Key[];
  /** The schema that the evaluated value has to fit. */
  schema: Schema;
  id: string;
  label: string;
  describedBy: string | undefined;
  value: string;
  onChange: (text: string) => void;
  /** The field became an expression while its text was typed. */
  autoFocus: boolean;
}

export interface Templates {
  Field: ComponentType<TemplateFieldProps>;
  /** Whether an expression can stand in a field of this shape; without it, in every field. */
  allows?: (shape: Shape, root: Schema) => boolean;
  /** What the page drags, dropped on a field; false when it is something else. */
  onDrop?: (keys: Key[], data: DataTransfer) => boolean;
  accepts?: (data: DataTransfer) => boolean;
}

/** The state of a form for a schema. Give the part that uses it a `key`, so that another schema begins anew. */
export function useForm(given: unknown, first?: unknown): Form {
  const schema: Schema = isSchema(given) ? given : true;
  const [state, setState] = useState<FormState>(() => start(schema, first));
  const issues = useMemo(() => issuesOf(state, (value) => validate(schema, value)), [schema, state]);
  const shape = useMemo(() => shapeOf(schema, schema), [schema]);
  const change = useCallback((next: (state: FormState) => FormState) => setState(next), []);
  return {
    schema,
    shape,
    state,
    issues,
    change,
    submit: () => {
      if (issues.length === 0) return { value: state.value };
      setState((now) => ({ ...now, showAll: true }));
      return null;
    },
    reset: (value) => setState(start(schema, value)),
  };
}

interface Context {
  form: Form;
  /** The name of the form's controls, for screen readers and tests. */
  name: string;
}
export const FormContext = createContext<Context | null>(null);

export function useFormContext(): Context {
  const context = use(FormContext);
  if (!context) throw new Error("a field outside of a form");
  return context;
}

/** The issues to show at a place; `deep` also counts those inside. */
export function useIssues(keys: readonly Key[]): Issue[] {
  const { form } = useFormContext();
  const at = pointer([...keys]);
  const show = form.state.showAll || form.state.touched.has(at);
  return show ? form.issues.filter((issue) => issue.at === at) : [];
}
