import { useCallback } from "react";
import { hasCut } from "@/lib/json-rows";
import { ExpressionField } from "@/parts/expression/ExpressionField";
import { useFormContext, type TemplateFieldProps } from "@/parts/form/use-form";
import { validate } from "@/parts/form/validate";
import { useExpressionService, useStepContext } from "./step-context";

/** A field whose value is an expression: it is evaluated on the last run, and checked against the field's schema. */
export function TemplateField({ keys, schema, id, label, describedBy, value, onChange, autoFocus }: TemplateFieldProps) {
  const { form } = useFormContext();
  const { context } = useStepContext();
  const service = useExpressionService(keys, false);
  const misfit = useCallback((result: unknown) => (hasCut(result) ? null : (validate(schema, result, form.schema)[0]?.message ?? null)), [schema, form.schema]);
  return <ExpressionField id={id} label={label} describedBy={describedBy} value={value} onChange={onChange} service={service} autoFocus={autoFocus} version={`${context.run} ${context.text}`} misfit={misfit} />;
}
