import type { PlanStepView } from "@/api/types";
import { pathOf, planRows } from "@/lib/plan-rows";
import { EffectMark, RollbackMark } from "./Marks";
import { SafeText, ToolName } from "./SafeText";

interface Props {
  steps: PlanStepView[];
  label: string;
  /** The path of the selected step, where steps can be selected. */
  selected?: string | null;
  onSelect?: (path: string) => void;
}

/** A plan as a table in the order of its text: what is called, after what, its effect and its rollback. */
export function PlanTable({ steps, label, selected, onSelect }: Props) {
  return (
    <table className="plantable" aria-label={label}>
      <thead>
        <tr>
          <th scope="col">Step</th>
          <th scope="col">Tool</th>
          <th scope="col">After</th>
          <th scope="col">Effect</th>
          <th scope="col">Rollback</th>
        </tr>
      </thead>
      <tbody>
        {planRows(steps).map((row) =>
          row.kind === "body" ? (
            <tr key={row.key}>
              <td colSpan={5} className="muted" style={{ paddingInlineStart: 12 + row.depth * 16 }}><SafeText text={row.label} most={200} /></td>
            </tr>
          ) : (
            <tr key={row.key} className={selected === pathOf(row.key) ? "sel" : undefined}>
              <th scope="row" style={{ paddingInlineStart: 12 + row.depth * 16 }}>
                {onSelect ? <button type="button" className="link" aria-pressed={selected === pathOf(row.key)} onClick={() => onSelect(pathOf(row.key))}><SafeText text={row.step.id} most={120} /></button> : <SafeText text={row.step.id} most={120} />}
                {row.step.when && <div className="muted mono">when <SafeText text={row.step.when} most={200} /></div>}
              </th>
              <td>{row.step.tool ? <ToolName tool={row.step.tool} /> : <span className="muted">{row.step.kind}</span>}</td>
              <td className="muted"><SafeText text={row.step.needs.join(", ")} most={200} /></td>
              <td>
                <EffectMark effect={row.step.effect} />
                {row.step.confirms && <div className="muted">asks first</div>}
              </td>
              <td><RollbackMark rollback={row.step.rollback} /></td>
            </tr>
          ),
        )}
      </tbody>
    </table>
  );
}
