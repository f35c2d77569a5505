import { useMemo } from "react";
import { JsonTree } from "@/parts/JsonTree";
import { useChecked, useShown } from "./builder";
import type { ShownRun } from "./run";
import { pathsById } from "./steps";

/** Parameters of the selected step beside the values that it can use. */
export function StepPane({ run }: { run: ShownRun | null }) {
  const selected = useShown((shown) => shown.selected);
  const steps = useChecked((checked) => checked.analysis?.steps);
  const path = useMemo(() => (selected ? pathsById(steps ?? []).get(selected) : undefined), [steps, selected]);
  const output = path ? run?.output(path) : undefined;
  if (!selected || output === undefined || output === null) return <p className="muted">No output in the shown run.</p>;
  return <JsonTree key={selected} value={output} name={selected} label={`Output of ${selected}`} root={selected} />;
}
