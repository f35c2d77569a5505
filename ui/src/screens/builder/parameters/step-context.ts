import { createContext, use, useMemo } from "react";
import { pointer } from "@/lib/expression";
import type { Key } from "@/parts/form/schema";
import type { ExpressionService } from "@/parts/expression/types";
import type { BuilderContext } from "../model";
import { preview } from "../requests";
import { DraftCompleter } from "./frame";

interface StepContext {
  context: BuilderContext;
  step: string;
}
export const StepContext = createContext<StepContext | null>(null);

export function useStepContext(): StepContext {
  const context = use(StepContext);
  if (!context) throw new Error("a field outside of a step's form");
  return context;
}

/** What an expression editor of one field asks the server. */
export function useExpressionService(keys: Key[], condition: boolean): ExpressionService {
  const { context, step } = useStepContext();
  const { text, name, run } = context;
  const field = pointer(keys);
  return useMemo(() => {
    const completer = new DraftCompleter({ text, name, run }, step, field, condition);
    return {
      complete: (draft, at, signal) => completer.complete(draft, at, signal),
      preview: async (draft, signal) => {
        const template = condition && !draft.includes("{{") ? `{{ ${draft} }}` : draft;
        const [first] = await preview({ text, name, run }, step, template, signal);
        return first ?? {};
      },
    };
  }, [text, name, run, step, field, condition]);
}
