// A run as something that can be pasted: a command line, curl, or an MCP call.
import type { RunView } from "@/api/types";

/** One word for a POSIX shell. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

export function asCommand(run: RunView, input: unknown, from: string | null): string {
  if (from) return `segue run --from ${shellWord(from)} --run ${run.run_id}`;
  const { until, only, run: earlier } = run.part ?? {};
  const part = until ? ` --until ${shellWord(until)}` : only ? ` --only ${shellWord(only)} --run ${earlier}` : "";
  const mocks = run.part?.pinned?.length ? ` --mocks ${shellWord(`${run.name}.test.yaml`)}` : "";
  const given = input && Object.keys(input).length > 0 ? ` --input ${shellWord(JSON.stringify(input))}` : "";
  return `segue run ${shellWord(run.name)}${part}${mocks}${given}`;
}

export function asCurl(run: RunView, input: unknown, from: string | null, origin: string): string {
  const head = `-H "Authorization: Bearer $SEGUE_TOKEN" -H "Content-Type: application/json"`;
  const [path, body] = from
    ? [`/api/v1/runs/${run.run_id}/rerun`, { from }]
    : ["/api/v1/compositions/execute", { name: run.name, input: input ?? {}, ...partOf(run) }];
  return `curl -sS -X POST ${origin}${path} ${head} -d ${shellWord(JSON.stringify(body))}`;
}

/** The members of a request that make it a run of the same part. A pinned output is as long as the page shows it. */
function partOf({ part, steps }: RunView): object {
  if (!part) return {};
  const { pinned, ...which } = part;
  const mocks = (pinned ?? []).map((step) => [step, { returns: steps.find((one) => one.id === step)?.output ?? null }]);
  return { ...which, ...(mocks.length > 0 ? { mocks: Object.fromEntries(mocks) } : {}) };
}

export function asMcpCall(run: RunView, input: unknown): string {
  // The composition's own tool performs all of it.
  const params = run.part
    ? { name: "composition_execute", arguments: { name: run.name, input: input ?? {}, ...partOf(run) } }
    : { name: run.name, arguments: input ?? {} };
  return JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }, null, 2);
}
