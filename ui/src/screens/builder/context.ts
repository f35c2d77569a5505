import { useDeferredValue, useMemo } from "react";
import { useBuilder, useChecked, useShown, useText } from "./builder";
import type { BuilderContext } from "./model";

/** What forms and expression editors get. The text comes a little later than it is typed, so that typing stays quick. */
export function useBuilderContext(): BuilderContext {
  const builder = useBuilder();
  const text = useDeferredValue(useText((now) => now.text));
  const analysis = useDeferredValue(useChecked((checked) => checked.read));
  const name = useShown((shown) => shown.file.path);
  const run = useShown((shown) => shown.run);
  return useMemo(() => ({ name, text, analysis, run, edit: (edit) => builder.edit(edit), select: (step) => builder.select(step) }), [name, text, analysis, run, builder]);
}
