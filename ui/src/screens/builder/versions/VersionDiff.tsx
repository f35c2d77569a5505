import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo, useState, type ReactNode } from "react";
import { plural } from "@/lib/format";
import { hunks, lines } from "@/lib/line-diff";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { Skeleton } from "@/parts/Skeleton";
import type { Compared } from "./diff-rows";
import { compareQuery, type StepChange, type TextComparison, type Version } from "./requests";
import { TextDiff } from "./TextDiff";

const GraphDiff = lazy(() => import("./GraphDiff").then((module) => ({ default: module.GraphDiff })));
type Pane = "text" | "graph";

interface Props {
  before: Version;
  after: Version;
  /** The file's path, under which the server reads both texts. */
  name: string | null;
  first?: Pane;
  hunk?: (index: number) => ReactNode;
  side?: (index: number) => "before" | "after";
  /** Beside a step's change, such as a button that takes it. */
  step?: (change: StepChange) => ReactNode;
}

export function useCompared(before: string, after: string): Compared {
  return useMemo(() => {
    const sides = { before: lines(before), after: lines(after) };
    return { ...sides, hunks: hunks(sides.before, sides.after) };
  }, [before, after]);
}

/** Two versions of a composition: what changed in its steps and its interface, as a graph, and line by line. */
export function VersionDiff({ before, after, name, first = "text", hunk, side, step }: Props) {
  const compared = useCompared(before.text, after.text);
  const [pane, setPane] = useState<Pane>(first);
  const comparison = useQuery({ ...compareQuery(before.text, after.text, name), enabled: compared.hunks.length > 0 });
  return (
    <section className="versiondiff" aria-label={`Differences from ${before.label} to ${after.label}`}>
      <div className="row">
        <span><SafeText text={before.label} most={80} /> → <b><SafeText text={after.label} most={80} /></b></span>
        <span className="muted">{plural(compared.hunks.length, "change")}</span>
        <span className="grow" />
        <Segmented mini label="View of the differences" value={pane} options={[{ value: "text", label: "Text", icon: "i-words" }, { value: "graph", label: "Graph", icon: "i-graph" }]} onChange={setPane} />
      </div>
      {comparison.error && <Failure error={comparison.error} />}
      {comparison.data && <Changes comparison={comparison.data} step={step} />}
      <div className="diffpane">
        {pane === "text" ? (
          <TextDiff compared={compared} label="Text of both versions" hunk={hunk} side={side} />
        ) : (
          <Suspense fallback={<Skeleton rows={4} label="Loading the graph" />}>
            <GraphDiff key={`${before.text.length} ${after.text.length}`} before={before} after={after} name={name} changes={comparison.data?.steps ?? NONE} />
          </Suspense>
        )}
      </div>
    </section>
  );
}

const NONE: never[] = [];
const ICON: Record<StepChange["change"], string> = { added: "i-plus", removed: "i-minus", changed: "i-writes", moved: "i-right", renamed: "i-words" };

function Changes({ comparison, step }: { comparison: TextComparison; step: Props["step"] }) {
  const breaking = comparison.interface.filter((one) => one.breaking);
  const other = comparison.interface.filter((one) => !one.breaking);
  if (comparison.steps.length + comparison.interface.length === 0) return <p className="muted">No step and no input or output differs: only the writing does.</p>;
  return (
    <div className="changes">
      {breaking.length > 0 && (
        <div className="err" role="group" aria-label="Breaking changes of the tool">
          <div className="eh"><Icon name="s-failed" />Callers of this tool break</div>
          <ul className="eb">{breaking.map((one, i) => <li key={i}><SafeText text={one.message} most={400} /></li>)}</ul>
        </div>
      )}
      <ul aria-label="Changed steps">
        {other.map((one, i) => <li key={i}><Icon name="i-tools" small /><SafeText text={one.message} most={400} /></li>)}
        {comparison.steps.map((one) => (
          <li key={`${one.change} ${one.step}`}>
            <Icon name={ICON[one.change]} small />
            <b><SafeText text={one.step} most={120} /></b>
            <span>{one.change}{one.was && <> from <SafeText text={one.was} most={120} /></>}</span>
            {(one.fields ?? []).length > 0 && <span className="muted ell"><SafeText text={(one.fields ?? []).join(", ")} most={200} /></span>}
            {step && <span className="r">{step(one)}</span>}
          </li>
        ))}
      </ul>
    </div>
  );
}
