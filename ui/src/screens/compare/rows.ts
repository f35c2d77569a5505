// Steps of two runs beside each other.
import type { ComparedStep } from "@/api/types";

export function differs(step: ComparedStep): boolean {
  if (!step.left || !step.right) return true;
  return step.left.status !== step.right.status || step.output === "differs" || step.input === "differs";
}

/** Why a row is worth a look, in words. */
export function verdict(step: ComparedStep): string {
  if (!step.left) return "only in the right run";
  if (!step.right) return "only in the left run";
  const words: string[] = [];
  if (step.left.status !== step.right.status) words.push("status");
  if (step.input === "differs") words.push("input");
  if (step.output === "differs") words.push("output");
  return words.length > 0 ? `${words.join(", ")} ${words.length === 1 ? "differs" : "differ"}` : "same";
}

/** `+1.20 s`, `−0.30 s`, or nothing when both took about the same. */
export function delta(left: number, right: number): string {
  const by = right - left;
  if (Math.abs(by) < Math.max(10, left * 0.05)) return "";
  const size = Math.abs(by) < 10_000 ? (Math.abs(by) / 1000).toFixed(2) : (Math.abs(by) / 1000).toFixed(1);
  return `${by > 0 ? "+" : "−"}${size} s`;
}
