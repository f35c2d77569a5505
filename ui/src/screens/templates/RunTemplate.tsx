import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import type { PlanView } from "@/api/types";
import { announce } from "@/app/announce";
import { Button } from "@/parts/Button";
import { Dialog } from "@/parts/Dialog";
import { DryRun } from "@/parts/DryRun";
import { Failure } from "@/parts/Failure";
import { SchemaForm } from "@/parts/form/SchemaForm";
import { useForm } from "@/parts/form/use-form";

interface Props {
  id: string;
  plan: PlanView;
  onClose: () => void;
}

/** Asks for the input, then starts the run and opens it. A dry run leaves no run: its result is shown below. */
export function RunTemplate({ id, plan, onClose }: Props) {
  const form = useForm(plan.inputs);
  const [json, setJson] = useState(false);
  const navigate = useNavigate();
  const start = useMutation({
    mutationFn: ({ input, dry_run }: { input: Record<string, unknown>; dry_run: boolean }) =>
      unwrap(
        api.POST("/api/v1/compositions/execute", {
          params: dry_run ? {} : { header: { Prefer: "respond-async" } },
          body: { template_id: id, input, options: { dry_run, approved: false } },
        }),
      ),
    onSuccess: (result, { dry_run }) => {
      if (dry_run) announce("The dry run ended");
      else void navigate({ to: "/runs/$id", params: { id: result.run_id } });
    },
  });
  const run = (dry_run: boolean) => {
    const checked = form.submit();
    if (checked) start.mutate({ input: (checked.value ?? {}) as Record<string, unknown>, dry_run });
  };
  return (
    <Dialog
      title={`Run ${id}`}
      open
      wide
      onClose={onClose}
      footer={
        <>
          <Button kind="ghost" onClick={() => setJson((now) => !now)}>{json ? "As a form" : "As JSON"}</Button>
          <span className="grow" />
          <Button kind="ghost" onClick={onClose}>Close</Button>
          <Button busy={start.isPending && start.variables.dry_run} onClick={() => run(true)}>Dry run</Button>
          <Button kind="primary" icon="i-play" busy={start.isPending && !start.variables.dry_run} onClick={() => run(false)}>Run</Button>
        </>
      }
    >
      {start.isError && <Failure error={start.error} />}
      <SchemaForm form={form} label="Input" json={json} />
      {start.data && start.variables.dry_run && <DryRun result={start.data} />}
    </Dialog>
  );
}
