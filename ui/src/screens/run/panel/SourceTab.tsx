import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { runSourceQuery, stepQuery } from "@/api/queries";
import type { RunSource, SourceSpan } from "@/api/types";
import { lastId, planPath } from "@/lib/path";
import { plainText } from "@/lib/safe-text";
import { CodeView } from "@/parts/CodeView";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import { useRunContext } from "../context";

/** The place of a step: the run's own text, or nothing for a step of a composition that it calls. */
export function usePlace(path: string): { source: RunSource | undefined; span: SourceSpan | undefined; error: unknown } {
  const { model: { run, byPath } } = useRunContext();
  const source = useQuery(runSourceQuery(run.run_id));
  const detail = useQuery({ ...stepQuery(run.run_id, path), enabled: byPath.has(path) });
  // The server names the steps of the text by their ids.
  const spans = source.data?.spans ?? [];
  const known = spans.find((one) => one.step === planPath(path)) ?? spans.find((one) => one.step === lastId(planPath(path)));
  const own = detail.data?.source;
  const here = own && own.composition === run.name ? own : undefined;
  return { source: source.data, span: here ?? (own ? undefined : known), error: source.error };
}

/** The last part of a path, of either kind. */
export const fileName = (file: string | null): string | null => file && (file.split(/[\\/]/).at(-1) ?? file);

export function SourceTab({ path }: { path: string }) {
  const { source, span, error } = usePlace(path);
  const { model } = useRunContext();
  if (error) return <Failure error={error} />;
  if (!source) return <Skeleton rows={8} label="Loading the text" />;
  const failed = model.byPath.get(path)?.status === "failed";
  return (
    <>
      <div className="sec">
        <h2><span title={plainText(source.file ?? "")}><SafeText text={fileName(source.file) ?? model.run.name} most={80} /></span>{span && `:${span.line}`}</h2>
        <Link to="/edit" search={{ from: `${source.current ? "composition" : "run"}:${source.current ? model.run.name : model.run.run_id}`, step: lastId(planPath(path)) }} className="btn sm r"><Icon name="i-comp" small />Open in the builder</Link>
        {!source.current && <span className="r muted">not what is served now</span>}
      </div>
      <CodeView
        label="Text of the composition"
        text={source.text}
        format={source.format}
        line={span?.line}
        marks={span ? [{ from: { line: span.line, column: span.column }, to: { line: span.end_line, column: span.end_column }, tone: failed ? "failed" : "selected" }] : []}
      />
    </>
  );
}

/** A few lines around the step. */
export function SourceLines({ path }: { path: string }) {
  const { source, span } = usePlace(path);
  const { select, model } = useRunContext();
  if (!source || !span) return null;
  const lines = source.text.split("\n");
  const from = Math.max(1, span.line - 1);
  const to = Math.min(lines.length, span.line + 3);
  return (
    <>
      <button type="button" className="link" onClick={() => select(path, "source")}><SafeText text={`${fileName(source.file) ?? model.run.name}:${span.line}:${span.column}`} most={80} /></button>
      <div className="src">
        {lines.slice(from - 1, to).map((text, i) => (
          <div key={i} className={from + i === span.line ? "hl" : undefined}>
            <span className="lnr" aria-hidden="true">{from + i}</span>
            <SafeText text={text} most={300} />
          </div>
        ))}
      </div>
    </>
  );
}
