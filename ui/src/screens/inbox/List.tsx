import { Link } from "@tanstack/react-router";
import type { Question } from "@/api/types";
import { clock, relative } from "@/lib/format";
import { SafeText, ToolName } from "@/parts/SafeText";
import { StateIcon } from "@/parts/State";
import type { Answered } from "./send-answer";
import { keyOf } from "./words";

interface Props {
  questions: Question[];
  answered: Answered[];
  current: string | undefined;
  now: number;
}

export function List({ questions, answered, current, now }: Props) {
  return (
    <nav className="qlist" aria-label="Questions">
      <h2>{questions.length === 0 ? "None waits" : `${questions.length} wait${questions.length === 1 ? "s" : ""}`}<span className="muted">newest first</span></h2>
      <ul>
        {questions.map((one) => (
          <li key={keyOf(one)}>
            <Link to="/inbox" search={{ question: keyOf(one) }} className="qrow" aria-current={keyOf(one) === current ? "true" : undefined}>
              <StateIcon state={one.question.kind === "doubt" ? "in_doubt" : "waiting"} />
              <span className="qmain">
                <span className="ell"><Headline data={one} /></span>
                <span className="ell muted"><SafeText text={one.name} most={80} />, step <SafeText text={one.question.step} most={120} /></span>
              </span>
              <span className="muted nowrap num">{one.expires_at ? `expires ${relative(one.expires_at, now)}` : relative(one.asked_at, now)}</span>
            </Link>
          </li>
        ))}
      </ul>
      {answered.length > 0 && (
        <>
          <h2>Answered here</h2>
          <ul>
            {answered.map((one) => (
              <li key={keyOf(one.question) + one.at}>
                <Link to="/runs/$id" params={{ id: one.question.run_id }} search={{ step: one.question.question.step }} className="qrow">
                  <StateIcon state={one.yes ? "success" : "denied"} />
                  <span className="qmain">
                    <span className="ell">{one.yes ? "Yes: " : "No: "}<Headline data={one.question} /></span>
                    <span className="ell muted"><SafeText text={one.question.name} most={80} />, step <SafeText text={one.question.question.step} most={120} /></span>
                  </span>
                  <span className="muted nowrap num">{clock(one.at)}</span>
                </Link>
              </li>
            ))}
          </ul>
        </>
      )}
    </nav>
  );
}

function Headline({ data: { question, name } }: { data: Question }) {
  switch (question.kind) {
    case "run":
      return <>May <SafeText text={name} most={80} /> run?</>;
    case "call":
      return <>May call <ToolName tool={question.tool ?? ""} /></>;
    case "doubt":
      return <>Did <ToolName tool={question.tool ?? ""} /> do its work?</>;
    default:
      return <>“<SafeText text={question.message} most={120} />”</>;
  }
}
