import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { toolsQuery } from "@/api/queries";
import type { TemplateView } from "@/api/types";
import { useCommands } from "@/app/commands";
import { useDenied } from "@/app/session";
import { duration } from "@/lib/format";
import { Button } from "@/parts/Button";
import { CopyButton } from "@/parts/Copy";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { EffectMark } from "@/parts/Marks";
import { PlanPanes, type PlanPane } from "@/parts/PlanPanes";
import { SafeText, ToolName } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import { RunTemplate } from "./RunTemplate";
import { sourceOf, templatePlanQuery, templateQuery, use } from "./queries";

/** One template: what it is for, how it went so far, its plan and text, and a button that runs it. */
export function Detail({ id, pane, onPane }: { id: string; pane: PlanPane; onPane: (pane: PlanPane) => void }) {
  const template = useQuery(templateQuery(id));
  const plan = useQuery(templatePlanQuery(id));
  const [running, setRunning] = useState(false);
  const denied = useDenied("run");
  const off = denied ?? (plan.isError ? "its plan has an error" : null);
  useCommands([{ id: "run-template", group: "This template", label: "Run this template", icon: "i-play", off, run: () => setRunning(true) }]);
  if (template.isPending) return <div className="half"><Skeleton label="Loading the template" /></div>;
  if (template.isError) return <div className="half pad"><Failure error={template.error} retry={() => void template.refetch()} /></div>;
  return (
    <section className="half" aria-label="Template">
      <div className="half-h">
        <div className="row">
          <h2 className="ell"><SafeText text={template.data.name} most={120} /></h2>
          {plan.data && <EffectMark effect={plan.data.effect} />}
          <span className="grow" />
          <CopyButton text={`segue templates run ${id}`} label="Copy as command line" size={undefined} />
          <Link to="/edit" search={{ from: `template:${id}` }} className="btn"><Icon name="i-comp" />Begin a composition</Link>
          <Button kind="primary" icon="i-play" off={off} onClick={() => setRunning(true)}>Run</Button>
        </div>
        <p><SafeText text={template.data.description} /></p>
        <Facts template={template.data} />
      </div>
      {plan.isError && <div className="pad"><Failure error={plan.error} retry={() => void plan.refetch()} /></div>}
      {plan.data && <PlanPanes plan={plan.data} source={sourceOf(template.data.composition)} pane={pane} onPane={onPane} />}
      {running && plan.data && <RunTemplate id={id} plan={plan.data} onClose={() => setRunning(false)} />}
    </section>
  );
}

const ORIGIN = { shipped: "part of Segue", file: "from a file", store: "added to the store" } as const;

function Facts({ template }: { template: TemplateView }) {
  const { metadata, validation, origin } = template;
  const known = new Set((useQuery(toolsQuery).data?.tools ?? []).map((tool) => tool.id));
  return (
    <dl className="facts">
      <div><dt>Use</dt><dd className="num">{use(metadata)}</dd></div>
      {metadata.estimated_duration_ms != null && <div><dt>Takes</dt><dd className="num">{duration(metadata.estimated_duration_ms)}</dd></div>}
      <div><dt>Category</dt><dd><SafeText text={metadata.category} most={60} /></dd></div>
      <div><dt>Origin</dt><dd>{ORIGIN[origin]}</dd></div>
      {metadata.tags.length > 0 && <div><dt>Tags</dt><dd><SafeText text={metadata.tags.join(", ")} most={200} /></dd></div>}
      {validation.required_tools.length > 0 && (
        <div>
          <dt>Needs</dt>
          <dd className="row">
            {validation.required_tools.map((tool) => (
              <span key={tool} className="row">
                <ToolName tool={tool} />
                {known.size > 0 && !known.has(tool) && <span className="st s-failed"><Icon name="s-failed" small />missing</span>}
              </span>
            ))}
          </dd>
        </div>
      )}
    </dl>
  );
}
