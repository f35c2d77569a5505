import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import type { CompositionDetail } from "@/api/types";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { useShortcuts } from "@/app/shortcuts";
import { stateWord } from "@/parts/State";
import { Button } from "@/parts/Button";
import { Failure } from "@/parts/Failure";
import { SchemaForm } from "@/parts/form/SchemaForm";
import { useForm } from "@/parts/form/use-form";
import { Segmented } from "@/parts/Segmented";
import { CodeView } from "@/parts/CodeView";
import { DryRun } from "@/parts/DryRun";
import { Tests } from "./Tests";

/** The input, then: run it, see what it would do, or run its tests. */
export function RunPane({ detail }: { detail: CompositionDetail }) {
  return <Pane key={detail.summary.plan_hash} detail={detail} />;
}

/** The last input of each composition, while the page is open: nobody types it twice. */
const lastInputs = new Map<string, unknown>();

function Pane({ detail }: { detail: CompositionDetail }) {
  const { name, input: schema } = detail.summary;
  const navigate = useNavigate();
  const denied = useDenied("run");
  const [view, setView] = useState<"form" | "json" | "schema">("form");
  const form = useForm(schema, lastInputs.get(name));
  const start = useMutation({
    mutationFn: ({ input, dry }: { input: unknown; dry: boolean }) =>
      unwrap(
        api.POST("/api/v1/compositions/execute", {
          params: dry ? {} : { header: { Prefer: "respond-async" } },
          body: { name, input: input as Record<string, never>, options: { dry_run: dry, approved: false } },
        }),
      ),
    onSuccess: (result, { dry }) => {
      if (!dry) void navigate({ to: "/runs/$id", params: { id: result.run_id } });
      else announce(`Dry run: ${stateWord(result.status)}`);
    },
  });
  const go = (dry: boolean) => {
    if (denied || start.isPending) return;
    const filled = form.submit();
    if (!filled) return announce("Something is missing or wrong in the input");
    lastInputs.set(name, filled.value);
    start.mutate({ input: filled.value, dry });
  };
  useShortcuts({ "Ctrl+Enter": () => go(false) });
  const pending = start.isPending ? start.variables : null;
  return (
    <div className="comp-scroll run" tabIndex={0} role="region" aria-label="Run">
      <section className="runform" aria-label="Input">
        <div className="row">
          <h2>Input</h2>
          <span className="grow" />
          <Segmented mini label="How the input is written" value={view} options={[{ value: "form", label: "Form" }, { value: "json", label: "JSON" }, { value: "schema", label: "Schema" }]} onChange={setView} />
        </div>
        {view === "schema" ? <div className="schemaview"><CodeView text={JSON.stringify(schema, null, 2)} format="json" label="Schema of the input" /></div> : <SchemaForm form={form} label="Input" json={view === "json"} />}
        <div className="row">
          <Button kind="primary" size="large" icon="i-play" keys="Ctrl Enter" off={denied} busy={pending?.dry === false} onClick={() => go(false)}>Run</Button>
          <Button size="large" icon="i-nocall" off={denied} busy={pending?.dry === true} onClick={() => go(true)}>Dry run</Button>
          <Button kind="ghost" icon="i-undo" onClick={() => form.reset()}>Defaults</Button>
        </div>
        <p className="muted">A dry run calls nothing that changes anything: it shows each call with its arguments.</p>
      </section>
      {start.isError && <Failure error={start.error} />}
      {start.data && start.variables.dry && <DryRun result={start.data} />}
      <Tests name={name} tests={detail.tests} />
    </div>
  );
}
