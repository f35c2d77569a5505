import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Looks, type Look } from "@/graph/looks";
import { PlanGraph } from "@/graph/PlanGraph";
import { Failure } from "@/parts/Failure";
import { Skeleton } from "@/parts/Skeleton";
import { pathsById, withGhosts, type WithGhosts } from "../steps";
import { stepsQuery, type StepChange, type Version } from "./requests";

const MARK: Record<StepChange["change"], { text: string; tone: "success" | "failed" | "waiting" | "dry_run"; icon: string }> = {
  added: { text: "added", tone: "success", icon: "i-plus" },
  removed: { text: "removed", tone: "failed", icon: "i-minus" },
  changed: { text: "changed", tone: "waiting", icon: "i-writes" },
  moved: { text: "moved", tone: "dry_run", icon: "i-right" },
  renamed: { text: "renamed", tone: "dry_run", icon: "i-words" },
};

/** The marks of steps that differ, by their paths in the graph with ghosts. */
export function changeLooks({ steps, ghosts }: WithGhosts, changes: readonly StepChange[]): Map<string, Look> {
  const looks = new Map<string, Look>();
  for (const path of ghosts) looks.set(path, { ghost: true, corner: MARK.removed });
  const paths = pathsById(steps);
  for (const one of changes) {
    const path = paths.get(one.step);
    if (path === undefined || ghosts.has(path)) continue;
    looks.set(path, { corner: one.change === "renamed" && one.was ? { ...MARK.renamed, text: `was ${one.was}` } : MARK[one.change] });
  }
  return looks;
}

interface Props {
  before: Version;
  after: Version;
  name: string | null;
  changes: readonly StepChange[];
}

/** Both versions as one graph: what the later one has, with marks, and ghosts of what it lost. */
export function GraphDiff({ before, after, name, changes }: Props) {
  const old = useQuery(stepsQuery(before.text, name));
  const now = useQuery(stepsQuery(after.text, name));
  const [selected, setSelected] = useState<string | null>(null);
  const drawn = useMemo(() => {
    if (!old.data || !now.data) return null;
    const renamed = new Map(changes.flatMap((one) => (one.change === "renamed" && one.was ? [[one.was, one.step] as const] : [])));
    const merged = withGhosts(now.data, old.data, renamed);
    const looks = new Looks();
    looks.set(changeLooks(merged, changes));
    return { steps: merged.steps, looks };
  }, [old.data, now.data, changes]);
  const error = old.error ?? now.error;
  if (error) return <div className="pad"><Failure error={error} /></div>;
  if (!drawn) return <Skeleton rows={4} label="Loading the graph" />;
  if (drawn.steps.length === 0) return <p className="muted pad">Neither version can be read as steps.</p>;
  return <PlanGraph name={`diff ${name ?? ""}`} steps={drawn.steps} looks={drawn.looks} selected={selected} onSelect={setSelected} />;
}
