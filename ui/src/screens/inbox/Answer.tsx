import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import type { Question } from "@/api/types";
import { announce } from "@/app/announce";
import { useDenied, useSession } from "@/app/session";
import { Button } from "@/parts/Button";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { SchemaForm } from "@/parts/form/SchemaForm";
import { useForm } from "@/parts/form/use-form";
import { sendAnswer } from "./send-answer";
import { wordsOf } from "./words";

/** The form of an answer, and the two buttons. Keys only focus them; Enter answers. */
export function Answer({ data, outputSchema }: { data: Question; outputSchema: unknown }) {
  const { question } = data;
  const doubt = question.kind === "doubt";
  const schema: unknown = doubt ? (outputSchema ?? true) : (question.schema ?? null);
  const words = wordsOf(data);
  const noRight = useDenied("approve");
  const denied = noRight ?? (data.answerable ? null : (data.not_answerable_because ?? "you may not answer this question"));
  const [json, setJson] = useState(false);
  const [withValue, setWithValue] = useState(false);
  const form = useForm(schema ?? true);
  const send = useMutation({
    mutationFn: ({ yes, value }: { yes: boolean; value: unknown }) => sendAnswer(data, yes, value),
    onSuccess: (_, { yes }) => announce(yes ? `Answered: ${words.yes}` : `Answered: ${words.no}`),
  });
  const asks = doubt ? withValue : schema !== null;
  const allow = () => {
    const filled = asks ? form.submit() : { value: undefined };
    if (filled) send.mutate({ yes: true, value: filled.value });
    else announce("Something is missing or wrong in the answer");
  };
  return (
    <section className="qanswer" aria-label="Your answer">
      {doubt && (
        <label className="row">
          <input type="checkbox" checked={withValue} onChange={(event) => setWithValue(event.target.checked)} />
          <span>I know what it returned <span className="muted">(later steps may need it)</span></span>
        </label>
      )}
      {asks && (
        <div className="qform" tabIndex={0} role="region" aria-label="Form">
          <div className="row">
            <h3>{doubt ? "What the call returned" : "Your answer"}</h3>
            <span className="grow" />
            <Segmented mini label="How the answer is written" value={json ? "json" : "form"} options={[{ value: "form", label: "Form" }, { value: "json", label: "JSON" }]} onChange={(next) => setJson(next === "json")} />
          </div>
          <SchemaForm form={form} label={doubt ? "What the call returned" : "Your answer"} json={json} />
        </div>
      )}
      {send.isError && <Failure error={send.error} />}
      <div className="row">
        <People data={data} />
        <span className="grow" />
        <Button size="large" kind={doubt ? undefined : "danger"} keys="D" data-answer="deny" off={denied} busy={send.isPending && !send.variables.yes} onClick={() => !send.isPending && send.mutate({ yes: false, value: undefined })}>{words.no}</Button>
        <Button size="large" kind="primary" keys="A" data-answer="allow" off={denied} busy={send.isPending && send.variables.yes} onClick={() => !send.isPending && allow()}>{words.yes}</Button>
      </div>
    </section>
  );
}

function People({ data }: { data: Question }) {
  const { principal } = useSession();
  const needed = data.approvers_needed;
  const mine = data.principal === principal;
  return (
    <span className="row qpeople">
      <Icon name="i-person" />
      <span>
        {needed !== null && needed > 1 && <><b>{needed === 2 ? "Four eyes" : "Several people"}: {needed} people must say yes</b>, so the run may go on waiting after yours. </>}
        {!data.answerable && data.not_answerable_because && <><b><SafeText text={data.not_answerable_because} most={200} /></b>. </>}
        {mine && <>You started this run yourself{needed !== null && needed > 1 ? ", and your own yes may not count" : ""}. </>}
        <span className="muted">The journal records your answer as <SafeText text={principal} most={80} />.</span>
      </span>
    </span>
  );
}
