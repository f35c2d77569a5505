import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { CallResult, Tool } from "@/api/types";
import { duration, shortId } from "@/lib/format";
import { useNow } from "@/lib/use-now";
import { Button } from "@/parts/Button";
import { CopyButton } from "@/parts/Copy";
import { Failure } from "@/parts/Failure";
import { isSchema } from "@/parts/form/schema";
import { validate } from "@/parts/form/validate";
import { JsonTree } from "@/parts/JsonTree";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { State } from "@/parts/State";
import { WholeText } from "@/parts/WholeText";
import { milliseconds } from "./rows";
import type { CallState } from "./use-call";

interface Props {
  state: CallState;
  tool: Tool;
  onCancel: (run: string) => void;
}

/** What the call does, and what came back. */
export function Answer({ state, tool, onCancel }: Props) {
  return (
    <div className="tcol scroll answer" tabIndex={0} role="region" aria-label="Answer">
      {state.phase === "idle" ? (
        <>
          <h3>Answer</h3>
          <p className="muted">Call the tool: progress, output and raw messages appear here.</p>
        </>
      ) : state.phase === "calling" ? (
        <Calling state={state} onCancel={onCancel} />
      ) : (
        <>
          {state.error !== null && <Failure error={state.error} />}
          {state.result && <Result result={state.result} tool={tool} />}
        </>
      )}
      {state.progress.length > 0 && (
        <section>
          <h3>Progress</h3>
          <ol className="tprogress">{state.progress.slice(-20).map((line, i) => <li key={i}><SafeText text={line} most={300} /></li>)}</ol>
        </section>
      )}
    </div>
  );
}

function Calling({ state, onCancel }: { state: CallState; onCancel: (run: string) => void }) {
  const now = useNow(true, 250);
  const { runId } = state;
  return (
    <>
      <div className="row">
        <h3>Answer</h3>
        <State state="running">Running {duration(Math.max(0, now - state.since))}</State>
        <span className="grow" />
        <Button size="small" icon="i-stop" kind="danger" busy={state.cancelling} off={runId ? null : "its run has not begun yet"} onClick={() => runId && onCancel(runId)}>Cancel</Button>
      </div>
      {runId && <p className="muted">Run <Link to="/runs/$id" params={{ id: runId }}>{shortId(runId)}</Link></p>}
      {state.error !== null && <Failure error={state.error} />}
    </>
  );
}

type View = "text" | "tree" | "json";

function Result({ result, tool }: { result: CallResult; tool: Tool }) {
  const { output } = result;
  const text = textOf(output);
  const [view, setView] = useState<View>(text === null ? "tree" : "text");
  const options: { value: View; label: string }[] = [...(text === null ? [] : [{ value: "text" as const, label: "Text" }]), { value: "tree", label: "Tree" }, { value: "json", label: "JSON" }];
  const json = JSON.stringify(output, null, 2) ?? "null";
  return (
    <>
      <div className="row">
        <h3>Answer</h3>
        <State state={result.status} />
        <span className="muted num">{milliseconds(result.duration_ms)}</span>
        <span className="grow" />
        <CopyButton text={view === "text" && text !== null ? text : json} label="Copy the output" />
        <Segmented mini label="How the output is shown" value={view} options={options} onChange={setView} />
      </div>
      {result.error && (
        <div className="err">
          <div className="eh"><SafeText text={result.error.message} most={4000} /></div>
          {result.error.hint && <div className="eb"><p><SafeText text={result.error.hint} most={1000} /></p></div>}
        </div>
      )}
      {(result.waiting_for ?? []).map((question, i) => (
        <p key={i}>It asks first: <Link to="/inbox" search={{ question: `${result.run_id} ${question.step}` }}>answer in the inbox</Link>.</p>
      ))}
      {!result.error && result.status !== "waiting" && (view === "text" && text !== null ? <WholeText text={text} label="Output" /> : view === "json" ? <WholeText text={json} label="Output" /> : <JsonTree value={output} name="output" label="Output" openDepth={2} />)}
      <dl className="tkept">
        {!result.error && result.status === "success" && <Fits tool={tool} output={output} />}
        <dt>Kept as</dt>
        <dd>run <Link to="/runs/$id" params={{ id: result.run_id }}>{shortId(result.run_id)}</Link></dd>
      </dl>
    </>
  );
}

function Fits({ tool, output }: { tool: Tool; output: unknown }) {
  const schema: unknown = tool.output_schema;
  const issues = isSchema(schema) ? validate(schema, output) : [];
  return (
    <>
      <dt>Fits its schema</dt>
      <dd>{!isSchema(schema) ? "it declares none" : issues.length === 0 ? "yes" : <span className="bad"><SafeText text={`no: ${issues.slice(0, 3).map((issue) => `${issue.at || "the value"} ${issue.message}`).join("; ")}`} most={400} /></span>}</dd>
    </>
  );
}

/** The output as text, where it is one: a string, or the text parts of an MCP answer. */
export function textOf(output: unknown): string | null {
  if (typeof output === "string") return output;
  const content: unknown = typeof output === "object" && output !== null && "content" in output ? output.content : null;
  if (!Array.isArray(content)) return null;
  const texts = content.filter((part): part is { text: string } => typeof part === "object" && part !== null && "text" in part && typeof part.text === "string");
  return texts.length > 0 && texts.length === content.length ? texts.map((part) => part.text).join("\n") : null;
}
