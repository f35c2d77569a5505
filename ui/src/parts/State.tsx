import type { ReactNode } from "react";
import type { RunStatus, StepStatus } from "@/api/types";
import { Icon } from "./Icon";

export type AnyState = RunStatus | StepStatus;

const WORDS: Record<AnyState, string> = {
  pending: "Pending",
  running: "Running",
  waiting: "Waiting",
  success: "Success",
  partial: "Partial",
  failed: "Failed",
  rolled_back: "Rolled back",
  rollback_failed: "Rollback failed",
  cancelled: "Cancelled",
  denied: "Denied",
  in_doubt: "In doubt",
  skipped: "Skipped",
  dry_run: "Dry run",
};

export const stateWord = (state: AnyState): string => WORDS[state] ?? state;
export const isOver = (state: RunStatus): boolean => !["pending", "running", "waiting"].includes(state);

/** Icon shape, word, colour: always in this order, never colour alone. */
export function State({ state, children }: { state: AnyState; children?: ReactNode }) {
  return (
    <span className={`st s-${state}`}>
      <Icon name={`s-${state}`} />
      <span className="ell">{children ?? stateWord(state)}</span>
    </span>
  );
}

export function StatePill({ state, children }: { state: AnyState; children?: ReactNode }) {
  return (
    <span className={`pill s-${state}`}>
      <Icon name={`s-${state}`} small />
      {children ?? stateWord(state)}
    </span>
  );
}

/** Only the icon; its word is its accessible name. */
export function StateIcon({ state }: { state: AnyState }) {
  return (
    <span className={`sti s-${state}`}>
      <Icon name={`s-${state}`} label={stateWord(state)} />
    </span>
  );
}
