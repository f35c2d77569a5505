// Steps of two runs beside each other.
import type { ComparedStep } from "@/api/types";

export const differs = (step: ComparedStep): boolean => step.differs.length > 0;

/** Why a row is worth a look, in words. */
export function verdict(step: ComparedStep): string {
  if (!step.left) return "only in the right run";
  if (!step.right) return "only in the left run";
  if (!differs(step)) return "same";
  return `${step.differs.join(", ")} ${step.differs.length === 1 ? "differs" : "differ"}`;
}

/** `+1.20 s`, `−0.30 s`, or nothing when both took about the same. */
export function delta(left: number, right: number): string {
  const by = right - left;
  if (Math.abs(by) < Math.max(10, left * 0.05)) return "";
  const size = Math.abs(by) < 10_000 ? (Math.abs(by) / 1000).toFixed(2) : (Math.abs(by) / 1000).toFixed(1);
  return `${by > 0 ? "+" : "−"}${size} s`;
}
