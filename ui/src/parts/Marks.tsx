import type { Impact, RollbackView } from "@/api/types";
import { Icon } from "./Icon";

const EFFECT_ICON: Record<Impact, string> = {
  none: "i-nocall",
  reads: "i-reads",
  writes: "i-writes",
  destroys: "i-destroys",
  unknown: "i-unknown",
};
const EFFECT_WORD: Record<Impact, string> = {
  none: "calls nothing",
  reads: "reads",
  writes: "writes",
  destroys: "destroys",
  unknown: "effect unknown",
};

/** Eye reads, pencil writes, bin destroys, dotted box unknown. `short` leaves the word to the screen reader. */
export function EffectMark({ effect, short }: { effect: Impact; short?: boolean }) {
  if (effect === "none") return null;
  const word = EFFECT_WORD[effect];
  return (
    <span className={`mark ${effect}`} title={short ? word : undefined}>
      <Icon name={EFFECT_ICON[effect]} label={short ? word : undefined} />
      {!short && <span>{effect === "unknown" ? "unknown" : word}</span>}
    </span>
  );
}

const ROLLBACK: Record<string, { icon: string; word: string; full: string; tone: string }> = {
  call: { icon: "i-rb", word: "rollback", full: "can be rolled back", tone: "" },
  inside: { icon: "i-rb", word: "rollback", full: "the steps inside are rolled back", tone: "" },
  impossible: { icon: "i-norb", word: "no rollback", full: "cannot be rolled back", tone: "no" },
  unknown: { icon: "i-rbq", word: "rollback ?", full: "rollback unknown", tone: "unknown" },
};

/** Arrow (call), struck arrow (impossible), arrow with "?" (unknown), none (not needed). */
export function RollbackMark({ rollback, short }: { rollback: RollbackView; short?: boolean }) {
  const mark = ROLLBACK[rollback.kind];
  if (!mark) return null;
  const reason = rollback.kind === "impossible" ? rollback.reason : rollback.kind === "call" ? `by ${rollback.tool}` : "";
  return (
    <span className={`mark ${mark.tone}`} title={reason ? `${mark.full}: ${reason}` : mark.full}>
      <Icon name={mark.icon} label={short ? mark.full : undefined} />
      {!short && <span>{mark.word}</span>}
    </span>
  );
}
