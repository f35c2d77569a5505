import { createContext, useContext } from "react";
import type { RunActions } from "./actions";
import type { RunModel } from "./model";
import type { Rail } from "./rollback";
import type { PanelTab } from "./search";

export interface RunContext {
  model: RunModel;
  rail: Rail;
  actions: RunActions;
  now: number;
  /** The path of the selected step or item in the run. */
  selected: string | null;
  tab: PanelTab | undefined;
  select: (path: string | null, tab?: PanelTab) => void;
  openRerun: (from: string | null) => void;
}

export const RunCtx = createContext<RunContext | null>(null);

export function useRunContext(): RunContext {
  const context = useContext(RunCtx);
  if (!context) throw new Error("outside of a run");
  return context;
}
