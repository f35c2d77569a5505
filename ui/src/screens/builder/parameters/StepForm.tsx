import { useCallback, useMemo, type FocusEvent } from "react";
import type { Tool } from "@/api/types";
import { pointer } from "@/lib/expression";
import { Icon } from "@/parts/Icon";
import { Body } from "@/parts/form/Body";
import { FormField } from "@/parts/form/FormField";
import { RawText } from "@/parts/form/RawText";
import type { FieldChange } from "@/parts/form/changes";
import { isObject, isSchema, type Key, type Schema } from "@/parts/form/schema";
import { getAt } from "@/parts/form/state";
import { useFollowingForm, type FollowingForm } from "@/parts/form/use-following-form";
import { FormContext, type Templates } from "@/parts/form/use-form";
import { validate, type Issue } from "@/parts/form/validate";
import { isTemplate } from "@/parts/form/words";
import { SafeText } from "@/parts/SafeText";
import "@/parts/form/form.css";
import { DRAG, type BuilderContext } from "../model";
import { fieldGroups, kindOf, parametersKey, ROOT, takesExpression } from "./fields";
import "./parameters.css";
import { droppedField, fieldEdit } from "./reference";
import { StepContext } from "./step-context";
import { StepFields } from "./StepFields";
import { TemplateField } from "./TemplateField";

export interface StepFormProps {
  context: BuilderContext;
  /** The id of the step. */
  step: string;
  /** The step as it is written: `stepValue(text, id)`. */
  value: Record<string, unknown>;
  /** The definition of the tool that it calls, where there is one. */
  tool: Tool | null;
  /** Ids of steps that it may wait for. */
  others: readonly string[];
  /** Called with the pointer of the field that gets the focus, so that a value can be put there. */
  onField?: (field: string) => void;
}

/** All fields of a step. Each change becomes one edit. Give it the step's id as its `key`. */
export function StepForm(props: StepFormProps) {
  const { context, step, value, tool, others, onField } = props;
  const provided = useMemo(() => ({ context, step }), [context, step]);
  const parameters = useParametersForm(props);
  const check = useCallback((now: unknown): Issue[] => fieldIssues(isObject(now) ? now : {}), []);
  const fields = useFollowingForm({ schema: ROOT, value, check, templates: useTemplates(props, takesExpression), onChange: useSend(props) });
  const groups = useMemo(() => fieldGroups(value), [value]);
  const onFocus = (event: FocusEvent) => {
    const at = (event.target as Element).closest<HTMLElement>("[data-field]")?.dataset.field;
    if (at !== undefined) onField?.(at);
  };
  const flush = () => (parameters.flush(), fields.flush());
  return (
    <StepContext value={provided}>
      <div className="schemaform stepform" role="group" aria-label={`Fields of ${step}`} onFocus={onFocus} onBlur={flush}>
        <Refused form={parameters} />
        <Refused form={fields} />
        {kindOf(value) === "tool" && <Parameters form={parameters} at={parametersKey(value)} tool={tool} />}
        <FormContext value={{ form: fields, name: "Fields of the step" }}>
          {groups.map((group) => <StepFields key={group.name} group={group} others={others} />)}
        </FormContext>
      </div>
    </StepContext>
  );
}

function fieldIssues(step: Record<string, unknown>): Issue[] {
  return fieldGroups(step).flatMap(({ fields }) =>
    fields.flatMap(({ keys, schema }) => {
      const value = getAt(step, keys);
      return value === undefined ? [] : validate(schema, value, ROOT, true).map((issue) => ({ ...issue, at: pointer(keys) + issue.at }));
    }),
  );
}

function useSend({ context, step }: StepFormProps) {
  const { edit } = context;
  return useCallback((change: FieldChange) => edit({ ...change, step }), [edit, step]);
}

function useTemplates({ context, step }: StepFormProps, allows?: Templates["allows"]): Templates {
  const { edit } = context;
  return useMemo(
    () => ({
      Field: TemplateField,
      ...(allows ? { allows } : {}),
      accepts: (data: DataTransfer) => data.types.includes(DRAG.field),
      onDrop: (keys: Key[], data: DataTransfer) => {
        const dropped = droppedField(data.getData(DRAG.field));
        if (dropped) void edit(fieldEdit(dropped, step, pointer(keys)));
        return dropped !== null;
      },
    }),
    [edit, step, allows],
  );
}

function useParametersForm(props: StepFormProps): FollowingForm {
  const { tool, value } = props;
  const schema: Schema = isSchema(tool?.input_schema) ? tool.input_schema : true;
  const at = parametersKey(value);
  const check = useCallback(
    (now: unknown): Issue[] => (tool ? validate(schema, getAt(now, [at]) ?? {}, schema, true).map((issue) => ({ ...issue, at: `/${at}${issue.at}` })) : []),
    [tool, schema, at],
  );
  return useFollowingForm({ schema, value, check, templates: useTemplates(props), onChange: useSend(props) });
}

function Parameters({ form, at, tool }: { form: FollowingForm; at: string; tool: Tool | null }) {
  const keys: Key[] = [at];
  const { shape } = form;
  const whole = isTemplate(getAt(form.state.value, keys));
  const nothing = shape.kind === "object" && shape.properties.length === 0 && shape.more === null && getAt(form.state.value, keys) === undefined;
  return (
    <FormContext value={{ form, name: "Parameters" }}>
      <section aria-label="Parameters" className="stepparams">
        {!tool ? (
          <>
            <p className="muted">Segue does not know this tool now, so its arguments are JSON.</p>
            <RawText keys={keys} label={at} rows={4} />
          </>
        ) : whole || shape.kind !== "object" ? (
          <FormField schema={form.schema} keys={keys} name={at} required={false} />
        ) : nothing ? (
          <p className="muted">It takes no arguments.</p>
        ) : (
          <Body schema={form.schema} keys={keys} shape={shape} label={at} required level={0} top />
        )}
      </section>
    </FormContext>
  );
}

function Refused({ form }: { form: FollowingForm }) {
  if (!form.refused) return null;
  return (
    <div className="help bad" role="alert">
      <Icon name="s-failed" small />
      <SafeText text={form.refused} most={600} />
    </div>
  );
}
