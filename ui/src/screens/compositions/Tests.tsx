import { useMutation } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { CompositionDetail, TestReport, TestsReport } from "@/api/types";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { duration } from "@/lib/format";
import { Button } from "@/parts/Button";
import { Command } from "@/parts/Empty";
import { Failure } from "@/parts/Failure";
import { Finding } from "@/parts/Finding";
import { SafeText } from "@/parts/SafeText";
import { State } from "@/parts/State";

/** Runs with mocked tools, from the test files beside the composition. */
export function Tests({ name, tests }: { name: string; tests: CompositionDetail["tests"] }) {
  const denied = useDenied("run");
  const run = useMutation({
    mutationFn: (test: string | undefined) => unwrap(api.POST("/api/v1/compositions/{name}/test", { params: { path: { name } }, body: { test } })),
    onSuccess: (report) => announce(`${report.passed} passed, ${report.failed} failed`),
  });
  const report = run.data;
  return (
    <section className="tests" aria-label="Tests">
      <div className="row">
        <h2>Run with mocks from tests</h2>
        {report && <span className="muted">{report.passed} passed, {report.failed} failed{report.broken > 0 && `, ${report.broken} cannot run`}</span>}
        <span className="grow" />
        {tests.length > 0 && <Button size="small" icon="i-play" off={denied} busy={run.isPending && run.variables === undefined} onClick={() => run.mutate(undefined)}>Run all tests</Button>}
      </div>
      {run.isError && <Failure error={run.error} />}
      {tests.length === 0 ? (
        <>
          <p className="muted">It has no tests. This records a run as a test, with the answers of its tools:</p>
          <Command text={`segue run ${name} --record ${name}.test.yaml`} />
        </>
      ) : (
        <ul>
          {tests.map((test) => (
            <li key={`${test.file} ${test.name}`}>
              <div className="row">
                <Outcome report={find(report, test)} />
                <span className="ell"><SafeText text={test.name} most={200} /></span>
                <span className="muted ell"><SafeText text={test.file} most={120} /></span>
                <span className="grow" />
                <Button size="small" kind="ghost" icon="i-play" aria-label={`Run the test ${test.name}`} off={denied} busy={run.isPending && run.variables === test.name} onClick={() => run.mutate(test.name)}>Run</Button>
              </div>
              <Misses report={find(report, test)} />
            </li>
          ))}
        </ul>
      )}
      {(report?.files ?? []).flatMap((file) => file.diagnostics).map((finding, i) => <Finding key={i} finding={finding} />)}
    </section>
  );
}

function find(report: TestsReport | undefined, test: { name: string; file: string }): TestReport | undefined {
  return report?.files.find((file) => file.file === test.file)?.tests.find((one) => one.name === test.name);
}

function Outcome({ report }: { report: TestReport | undefined }) {
  if (!report) return <State state="pending">Not run</State>;
  return <State state={report.ok ? "success" : "failed"}>{report.ok ? `Passed ${duration(report.duration_ms)}` : "Failed"}</State>;
}

function Misses({ report }: { report: TestReport | undefined }) {
  if (!report || report.ok) return null;
  return (
    <ul className="misses">
      {report.misses.map((miss, i) => (
        <li key={i}>
          <p><SafeText text={miss.message} most={600} /> <span className="muted">line {miss.line}</span></p>
          {miss.help && <p className="muted"><SafeText text={miss.help} most={300} /></p>}
          {(miss.expected !== undefined || miss.actual !== undefined) && (
            <div className="twocols">
              <div><span className="muted">expected</span><pre className="code whole" tabIndex={0}><SafeText text={JSON.stringify(miss.expected, null, 2) ?? "nothing"} most={4000} /></pre></div>
              <div><span className="muted">actual</span><pre className="code whole" tabIndex={0}><SafeText text={JSON.stringify(miss.actual, null, 2) ?? "nothing"} most={4000} /></pre></div>
            </div>
          )}
        </li>
      ))}
    </ul>
  );
}
