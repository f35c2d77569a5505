import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import type { PlanStepView, StepView } from "@/api/types";
import { count, duration, plural } from "@/lib/format";
import { isCut } from "@/lib/json-rows";
import { itemOf, lastId } from "@/lib/path";
import { Icon } from "@/parts/Icon";
import { SafeText, ToolName } from "@/parts/SafeText";
import { StateIcon } from "@/parts/State";
import { VirtualList, type VirtualListHandle } from "@/parts/VirtualList";
import { useRunContext } from "../context";
import { PREVIEW_ITEMS, itemState, itemStateOf, type Loop, type RunModel } from "../model";
import { loopPageQuery, stepsPageQuery } from "../use-run";

const ROW = 32;
const PAGE = 50;

/** Failures grouped, then every item; the open one shows its steps. */
export function ItemsTab({ loop, plan }: { loop: Loop; plan: PlanStepView }) {
  const { model, selected, select } = useRunContext();
  const [only, setOnly] = useState<"all" | "failed">("all");
  const list = useRef<VirtualListHandle>(null);
  const open = selected ? itemOf(selected, loop.path) : null;
  const body = plan.bodies?.[0]?.steps ?? [];
  const rows = useMemo(() => {
    const items = only === "failed" ? loop.failed : Array.from({ length: loop.total }, (_, i) => i);
    return items.flatMap((item) => [{ item, step: null as PlanStepView | null }, ...(item === open ? body.map((step) => ({ item, step })) : [])]);
  }, [only, loop, open, body]);
  useEffect(() => {
    const at = rows.findIndex((row) => row.item === open);
    if (at >= 0) list.current?.scrollTo(Math.min(rows.length - 1, at + body.length));
    // Only when another item opens, not when rows change.
  }, [open]);
  return (
    <>
      <Groups loop={loop} />
      <div className="sec">
        <h2>Items</h2>
        <span className="r">
          <button type="button" className={only === "all" ? "chip on" : "chip"} aria-pressed={only === "all"} onClick={() => setOnly("all")}>All <span className="num">{count(loop.total)}</span></button>
          <button type="button" className={only === "failed" ? "chip on" : "chip"} aria-pressed={only === "failed"} onClick={() => setOnly("failed")}>Failed <span className="num">{count(loop.failed.length)}</span></button>
        </span>
      </div>
      {rows.length === 0 ? (
        <p className="muted">{only === "failed" ? "No item failed" : "No item has begun"}</p>
      ) : (
        <VirtualList
          ref={list}
          className="itemlist"
          role="list"
          aria-label={`Items of ${lastId(loop.path)}`}
          count={rows.length}
          rowHeight={ROW}
          row={(i) => {
            const row = rows[i];
            if (!row) return null;
            const at = `${loop.path}[${row.item}]`;
            if (row.step) return <div role="listitem"><StepLine path={`${at}/${row.step.id}`} step={row.step} onSelect={select} model={model} /></div>;
            return <div role="listitem"><ItemLine loop={loop} item={row.item} body={body.length} on={row.item === open} onSelect={() => select(row.item === open ? loop.path : at)} /></div>;
          }}
        />
      )}
    </>
  );
}

function Groups({ loop }: { loop: Loop }) {
  const { model, select } = useRunContext();
  const page = useQuery({ ...loopPageQuery(model.run.run_id, loop.path), enabled: loop.failed.length > 0 });
  const groups = page.data?.failed_groups ?? [];
  if (groups.length === 0) return null;
  return (
    <section aria-label="Failures, grouped">
      <div className="sec"><h2>Failures, grouped</h2></div>
      {groups.slice(0, 8).map((group) => (
        <button key={group.message + group.first} type="button" className="group s-failed" onClick={() => select(group.first)}>
          <Icon name="s-failed" />
          <span>
            <b><SafeText text={group.message} most={300} /></b> {group.code && <code>{group.code}</code>}
            <span className="sub2">{plural(group.count, "step")}, first <SafeText text={group.first} most={80} /></span>
          </span>
        </button>
      ))}
    </section>
  );
}

interface ItemLineProps {
  loop: Loop;
  item: number;
  body: number;
  on: boolean;
  onSelect: () => void;
}

function ItemLine({ loop, item, body, on, onSelect }: ItemLineProps) {
  const { model } = useRunContext();
  const steps = useItemSteps(model, loop, item, body);
  const state = steps.length > 0 ? itemState(steps) : itemStateOf(loop, item);
  const tries = Math.max(0, ...steps.map((step) => step.attempts));
  return (
    <button type="button" className={`itemrow${on ? " sel" : ""}`} aria-current={on || undefined} onClick={onSelect}>
      <span className="num muted">[{item}]</span>
      <StateIcon state={state} />
      <span className="ell"><SafeText text={itemTitle(model, loop, item, steps)} most={120} /></span>
      {tries > 1 && <span className="muted">×{tries}</span>}
      <span className="num">{itemDuration(steps)}</span>
    </button>
  );
}

/** From the preview, or a page of steps for later items. */
function useItemSteps(model: RunModel, loop: Loop, item: number, body: number): StepView[] {
  const later = item >= PREVIEW_ITEMS;
  const first = Math.floor(item / PAGE) * PAGE;
  const page = useQuery({ ...stepsPageQuery(model.run.run_id, loop.path, first * body, PAGE * body), enabled: later });
  const prefix = `${loop.path}[${item}]/`;
  const near = later ? (page.data?.steps ?? []) : model.run.steps;
  return useMemo(() => near.filter((step) => step.id.startsWith(prefix) && !step.id.slice(prefix.length).includes("/")), [near, prefix]);
}

function itemDuration(steps: StepView[]): string {
  const starts = steps.map((step) => (step.started_at ? Date.parse(step.started_at) : Number.NaN)).filter(Number.isFinite);
  const ends = steps.map((step) => (step.completed_at ? Date.parse(step.completed_at) : Number.NaN)).filter(Number.isFinite);
  return starts.length > 0 && ends.length > 0 ? duration(Math.max(...ends) - Math.min(...starts)) : "";
}

const TITLES = ["title", "name", "label", "text", "url", "path", "id", "number"];

/** Something that tells items apart: a name in the item's value, else in the arguments of its first step. */
function itemTitle(model: RunModel, loop: Loop, item: number, steps: StepView[]): string {
  const output = model.byPath.get(loop.path)?.output;
  const values = isCut(output) ? output.$cut.preview : output;
  return nameOf(Array.isArray(values) ? values[item] : undefined) ?? nameOf(steps[0]?.input) ?? "";
}

function nameOf(value: unknown): string | null {
  if (typeof value === "string" || typeof value === "number") return String(value);
  if (typeof value !== "object" || value === null) return null;
  const members = value as Record<string, unknown>;
  const known = TITLES.find((key) => typeof members[key] === "string" || typeof members[key] === "number");
  const found = known ? members[known] : Object.values(members).find((one) => typeof one === "string");
  return found === undefined ? null : String(found);
}

function StepLine({ path, step, onSelect, model }: { path: string; step: PlanStepView; onSelect: (path: string) => void; model: RunModel }) {
  const view = model.byPath.get(path);
  return (
    <button type="button" className="itemrow inner" onClick={() => onSelect(path)}>
      <StateIcon state={view?.status ?? "pending"} />
      <span className="ell"><SafeText text={step.id} most={60} /> {step.tool && <ToolName tool={step.tool} />}</span>
      <span className="num">{view?.started_at ? duration(view.duration_ms) : ""}</span>
    </button>
  );
}
