import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import type { Impact, ServerView, Tool } from "@/api/types";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { useShortcuts } from "@/app/shortcuts";
import { Button } from "@/parts/Button";
import { CodeView } from "@/parts/CodeView";
import { CopyButton } from "@/parts/Copy";
import { SchemaForm } from "@/parts/form/SchemaForm";
import { useForm } from "@/parts/form/use-form";
import { EffectMark, RollbackMark } from "@/parts/Marks";
import { SafeText, ToolName } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { Answer } from "./Answer";
import { Facts } from "./Facts";
import { Frames } from "./Frames";
import { rollbackOf } from "./rows";
import { useCall } from "./use-call";

/** The last arguments of each tool, while the page is open. */
const lastArguments = new Map<string, unknown>();

export function ToolPane({ tool, server }: { tool: Tool; server: ServerView | null }) {
  const { tab = "form" } = useSearch({ from: "/tools" });
  const navigate = useNavigate({ from: "/tools" });
  const denied = [useDenied("run"), useDenied("compose")].find(Boolean) ?? null;
  const mayApprove = useDenied("approve") === null;
  const form = useForm(tool.input_schema, lastArguments.get(tool.id));
  const { state, call, cancel } = useCall();
  const [timeout, setTimeout] = useState("");
  const [approved, setApproved] = useState(false);
  const off = denied ?? (server?.state === "failed" ? "its server is down" : null);
  const calling = state.phase === "calling";
  const go = () => {
    if (off || calling) return;
    const filled = form.submit();
    if (!filled) return announce("Something is missing or wrong in the arguments");
    lastArguments.set(tool.id, filled.value);
    void call({ tool: tool.id, args: (filled.value ?? {}) as Record<string, unknown>, timeout: timeout.trim(), approved: approved && tool.confirms && mayApprove });
  };
  useShortcuts({ "Ctrl+Enter": go });
  return (
    <section className="tpane" aria-label={`Tool ${tool.id}`}>
      <header className="thead">
        <div className="row">
          <h2><ToolName tool={tool.id} /></h2>
          <EffectMark effect={tool.effect as Impact} />
          <RollbackMark rollback={rollbackOf(tool.rollback)} />
          <CopyButton text={tool.id} label="Copy its name" />
        </div>
        <p className="tdesc"><SafeText text={tool.description} most={3000} /></p>
        <Facts tool={tool} />
      </header>
      <div className="tcols">
        <div className="tcol scroll" tabIndex={0} role="region" aria-label="Arguments">
          <div className="row">
            <h3>{tab === "schema" ? "Schemas" : "Arguments"}</h3>
            <span className="grow" />
            <Segmented mini label="How the arguments are written" value={tab} options={[{ value: "form", label: "Form" }, { value: "json", label: "JSON" }, { value: "schema", label: "Schema" }]} onChange={(next) => void navigate({ search: (old) => ({ ...old, tab: next }), replace: true })} />
          </div>
          {tab === "schema" ? <Schemas tool={tool} /> : <SchemaForm form={form} label="Arguments" json={tab === "json"} />}
          {tool.confirms && (
            <label className="row">
              <input type="checkbox" checked={approved && mayApprove} disabled={!mayApprove} onChange={(event) => setApproved(event.target.checked)} />
              <span>I allow this call <span className="muted">{mayApprove ? "(else it asks in the inbox)" : "(needs the right “approve”, so it asks in the inbox)"}</span></span>
            </label>
          )}
          <div className="row">
            <Button kind="primary" size="large" icon="i-play" keys="Ctrl Enter" off={off} busy={calling} onClick={go}>Call the tool</Button>
            <label className="row ttimeout">Timeout<input className="input" value={timeout} placeholder="default" spellCheck={false} onChange={(event) => setTimeout(event.target.value)} /></label>
          </div>
          <p className="muted">{hint(tool)}</p>
        </div>
        <Answer state={state} tool={tool} onCancel={cancel} />
      </div>
      {state.result?.frames && <Frames frames={state.result.frames} />}
    </section>
  );
}

function hint(tool: Tool): string {
  if (tool.effect === "reads") return "It only reads. The call is kept as a run.";
  const what = tool.effect === "destroys" ? "It may destroy something" : tool.effect === "writes" ? "It changes something" : "Its effect is not declared";
  return `${what}${tool.confirms ? ", so it asks first" : ", and does not ask first"}. The call is kept as a run.`;
}

function Schemas({ tool }: { tool: Tool }) {
  const known = tool.output_schema !== null && tool.output_schema !== undefined;
  return (
    <>
      <h4>Input</h4>
      <div className="schemaview"><CodeView text={JSON.stringify(tool.input_schema, null, 2)} format="json" label="Schema of the arguments" /></div>
      <h4>Output</h4>
      {known ? <div className="schemaview"><CodeView text={JSON.stringify(tool.output_schema, null, 2)} format="json" label="Schema of the output" /></div> : <p className="muted">It declares none.</p>}
    </>
  );
}
