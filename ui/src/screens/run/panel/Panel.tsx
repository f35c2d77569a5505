import * as Tabs from "@radix-ui/react-tabs";
import { useQuery } from "@tanstack/react-query";
import { stepQuery } from "@/api/queries";
import { hasBodies, isLoop } from "@/graph/layout";
import { lastId, parentPath, planPath } from "@/lib/path";
import { IconButton } from "@/parts/Button";
import { copy } from "@/parts/Copy";
import { Icon } from "@/parts/Icon";
import { EffectMark, RollbackMark } from "@/parts/Marks";
import { SafeText, ToolName } from "@/parts/SafeText";
import { StateIcon, StatePill } from "@/parts/State";
import { useRunContext } from "../context";
import { findPlanStep, itemStateOf, stateOf } from "../model";
import type { PanelTab } from "../search";
import { Attempts } from "./Attempts";
import { ItemsTab } from "./ItemsTab";
import { RunPanel } from "./RunPanel";
import { SourceTab } from "./SourceTab";
import { StepTab } from "./StepTab";
import { ValueTree } from "./ValueTree";

/** Everything about the selected step, item or, without one, the run. */
export function Panel() {
  const { selected } = useRunContext();
  if (!selected) return <RunPanel />;
  // The items of a loop share its panel, so that the list keeps its place.
  return <StepPanel key={selected.replace(/\[\d+\]$/, "")} path={selected} />;
}

function StepPanel({ path }: { path: string }) {
  const { model, tab, select } = useRunContext();
  const item = /^(.*)\[(\d+)\]$/.exec(path);
  const loopPath = item?.[1] ?? path;
  const plan = findPlanStep(model.plan.steps, planPath(path));
  const loop = plan && isLoop(plan) ? model.loops.get(loopPath) : undefined;
  const view = model.byPath.get(loopPath);
  const detail = useQuery({ ...stepQuery(model.run.run_id, loopPath), enabled: view !== undefined });
  if (!plan)
    return (
      <aside className="panel" aria-label="Step">
        <div className="ph"><div className="ttl"><b>No step <code><SafeText text={path} most={80} /></code></b><Close /></div></div>
      </aside>
    );
  const state = item && loop ? itemStateOf(loop, Number(item[2])) : stateOf(model, path);
  const attempts = view?.attempts ?? 0;
  const tabs: [PanelTab, string][] = [
    ...(loop ? [["items", `Items ${loop.total}`] as [PanelTab, string]] : []),
    ["step", "Step"],
    ["input", "Input"],
    ["output", "Output"],
    ["attempts", attempts > 1 ? `Attempts ${attempts}` : "Attempts"],
    ["source", "YAML"],
  ];
  const current = tabs.some(([name]) => name === tab) ? tab : loop ? "items" : "step";
  return (
    <aside className="panel" aria-label={`Step ${lastId(path)}`}>
      <Tabs.Root value={current} onValueChange={(value) => select(path, value as PanelTab)} className="panel-in">
        <div className="ph">
          <div className="ttl">
            <StateIcon state={state} />
            <b className="ell" title={path}><SafeText text={lastId(path)} most={80} /></b>
            <StatePill state={state} />
            <span className="grow" />
            <IconButton icon="i-link" label="Copy a link to this step" kind="ghost" onClick={() => void copy(location.href, "Link copied")} />
            <Close />
          </div>
          <div className="sub">
            {plan.tool ? <ToolName tool={plan.tool} /> : <span className="tag"><Icon name={isLoop(plan) ? "i-loop" : "i-graph"} small />{plan.kind}{isLoop(plan) && plan.bodies?.[0] && <> over <SafeText text={plan.bodies[0].label.replace(/^each /, "")} most={60} /></>}</span>}
            {hasBodies(plan) && plan.tool && <span className="tag">composition</span>}
            <span className="grow" />
            <EffectMark effect={plan.effect} />
            <RollbackMark rollback={plan.rollback} />
          </div>
          {path.includes("/") && <Where path={path} />}
          <Tabs.List className="tabs" aria-label="About the step">
            {tabs.map(([name, word]) => <Tabs.Trigger key={name} value={name}>{word}</Tabs.Trigger>)}
          </Tabs.List>
        </div>
        {loop && <Tabs.Content value="items" className="pb items" tabIndex={-1}><ItemsTab loop={loop} plan={plan} /></Tabs.Content>}
        <Tabs.Content value="step" className="pb"><StepTab path={loopPath} plan={plan} view={view} detail={detail.data} /></Tabs.Content>
        <Tabs.Content value="input" className="pb"><ValueTree path={loopPath} part="input" value={view?.input} template={detail.data?.template} /></Tabs.Content>
        <Tabs.Content value="output" className="pb"><ValueTree path={loopPath} part="output" value={view?.output} /></Tabs.Content>
        <Tabs.Content value="attempts" className="pb"><Attempts path={loopPath} detail={detail.data} /></Tabs.Content>
        <Tabs.Content value="source" className="pb code-tab"><SourceTab path={loopPath} /></Tabs.Content>
      </Tabs.Root>
    </aside>
  );
}

/** The containers around a step; each is a way up. */
function Where({ path }: { path: string }) {
  const { select } = useRunContext();
  const up: string[] = [];
  for (let at = parentPath(path); at; at = parentPath(at)) if (!up.some((one) => one.startsWith(`${at}[`))) up.unshift(at);
  return (
    <div className="sub where">
      <span className="muted">in</span>
      {up.map((one) => (
        <button key={one} type="button" className="link" onClick={() => select(one)}><SafeText text={lastId(one)} most={40} /></button>
      ))}
    </div>
  );
}

function Close() {
  const { select } = useRunContext();
  return <IconButton icon="i-x" label="Close the step" kind="ghost" onClick={() => select(null)} />;
}
