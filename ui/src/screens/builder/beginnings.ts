// What a new composition begins with.
import { api, unwrap } from "@/api/client";
import { compositionQuery, filesQuery, queryClient, runSourceQuery } from "@/api/queries";
import { nameOfFile, readFile, type FileList } from "./files";
import { documentValue } from "./parameters/step-value";
import { freeId, idOf } from "./steps";
import { planTextQuery } from "../plans/queries";
import { sourceOf, templateQuery } from "../templates/queries";

export const SCRATCH = `name: new-composition
description: ""
steps: []
`;

export interface Beginning {
  text: string;
  format: "yaml" | "json";
  /** The test file whose recorded outputs go with it. */
  recording?: string;
}

/** The text that `from` names: `template:ID`, `plan:ID`, `run:ID`, `recording:PATH`, `composition:NAME`, or nothing at all. */
export async function beginning(from: string): Promise<Beginning> {
  const [kind, id] = [from.slice(0, from.indexOf(":")), from.slice(from.indexOf(":") + 1)];
  const yaml = (text: string): Beginning => ({ text, format: text.trimStart().startsWith("{") ? "json" : "yaml" });
  if (kind === "plan") return yaml(await queryClient.fetchQuery(planTextQuery(id)));
  if (kind === "run") return yaml((await queryClient.fetchQuery(runSourceQuery(id))).text);
  if (kind === "recording") return { ...yaml(await recordedText(id)), recording: id };
  if (kind === "composition") return yaml((await queryClient.fetchQuery(compositionQuery(id))).text);
  if (kind === "template") {
    const source = sourceOf((await queryClient.fetchQuery(templateQuery(id))).composition);
    if (!source) throw new Error("this template shows no text");
    return source;
  }
  return yaml(SCRATCH);
}

/** The file of a served composition, if this page may see it. */
export async function fileOf(composition: string): Promise<string | null> {
  const list = await queryClient.fetchQuery(filesQuery).catch(() => null);
  return list?.files.find((one) => one.kind === "composition" && one.composition === composition)?.path ?? null;
}

/** The composition that a test file tests: the one that it names, else the one beside it. Without it, the recorded calls as steps. */
async function recordedText(path: string): Promise<string> {
  const test = await readFile(path);
  const { files } = await queryClient.fetchQuery(filesQuery);
  const tested = files.find((one) => one.path === path)?.composition ?? null;
  const beside = path.replace(/\.test\.(ya?ml|json)$/, "");
  const file = files.find((one) => one.kind === "composition" && one.path.replace(/\.(ya?ml|json)$/, "") === beside) ?? files.find((one) => one.kind === "composition" && tested !== null && one.composition === tested);
  if (file) return (await readFile(file.path)).text;
  const text = stepsOfCalls(nameOfFile(beside), test.text);
  if (text === null) throw new Error("the composition of this recording is not here, and the recording has no calls");
  return text;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

/** A composition that makes the calls of a recording, one after the other, with the recorded arguments. */
export function stepsOfCalls(name: string, recording: string): string | null {
  const tests = documentValue(recording)?.tests;
  const expected = Array.isArray(tests) && isObject(tests[0]) ? tests[0].expect : null;
  const calls = isObject(expected) && Array.isArray(expected.calls) ? expected.calls.filter(isObject) : [];
  const taken = new Set<string>();
  const steps = calls.flatMap(({ step, tool, arguments: given }) => {
    if (typeof tool !== "string") return [];
    const id = freeId(typeof step === "string" ? idOf(step).replace(/\[\d+\]$/, "") : tool, taken);
    const last = [...taken].at(-1);
    taken.add(id);
    // JSON is YAML; what a tool was called with is quoted by it.
    return [`  - id: ${id}\n    tool: ${JSON.stringify(tool)}\n    parameters: ${JSON.stringify(given ?? {})}\n${last ? `    depends_on: ${last}\n` : ""}`];
  });
  return steps.length === 0 ? null : `name: ${JSON.stringify(name)}\ndescription: The calls of a recorded run\nsteps:\n${steps.join("")}`;
}

/** Files with tests and recordings, by path. */
export const recordings = (files: FileList | undefined) => (files?.files ?? []).filter((one) => one.kind === "test");

/** Runs whose text can be a beginning. */
export const recentRuns = () => ({ queryKey: ["builder-runs"], queryFn: () => unwrap(api.GET("/api/v1/runs", { params: { query: { limit: 12 } } })) });
