// Outputs that an author pinned: mocks in the test file beside the composition, or in the recording that it began with.
import { useQuery } from "@tanstack/react-query";
import { filesQuery } from "@/api/queries";
import { useBuilder, useShown } from "./builder";
import { readFile, testFileOf } from "./files";
import { documentValue } from "./parameters/step-value";

export interface Pins {
  file: string;
  /** By the step's id, or its path in bodies, as the file names it. */
  outputs: ReadonlyMap<string, unknown>;
  /** Of a recording: the input of the recorded run. */
  input: Record<string, unknown> | null;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

/** What a step answers at last: a recorded one may have failed before. */
function returned(answer: unknown): { value: unknown } | null {
  const last: unknown = Array.isArray(answer) ? answer.at(-1) : answer;
  return isObject(last) && Object.hasOwn(last, "returns") ? { value: last.returns } : null;
}

/** The answers of steps in a test file: those for every test, and of a recording also those of its only test. */
export function pinsOf(file: string, text: string): Pins {
  const document = documentValue(text);
  const tests = Array.isArray(document?.tests) ? document.tests.filter(isObject) : [];
  const recorded = tests.length === 1 && tests[0]?.name === "recorded" ? tests[0] : null;
  const outputs = new Map<string, unknown>();
  for (const tools of [document?.tools, recorded?.tools]) {
    if (!isObject(tools)) continue;
    for (const [name, answer] of Object.entries(tools)) {
      // With a colon it is a tool, whichever step calls it.
      const one = name.includes(":") ? null : returned(answer);
      if (one) outputs.set(name, one.value);
    }
  }
  return { file, outputs, input: isObject(recorded?.input) ? recorded.input : null };
}

const NONE: ReadonlyMap<string, unknown> = new Map();

/** What is pinned now, or null where there is no such file. */
export function usePins(): Pins | null {
  const { recording } = useBuilder();
  const { path, hash } = useShown((shown) => shown.file);
  const wanted = path !== null && hash !== null ? testFileOf(path) : recording;
  const files = useQuery(filesQuery).data?.files;
  const entry = wanted === null ? undefined : files?.find((one) => one.path === wanted);
  const read = useQuery({
    queryKey: ["pins", entry?.path, entry?.hash],
    queryFn: async () => pinsOf(entry?.path ?? "", (await readFile(entry?.path ?? "")).text),
    enabled: entry !== undefined,
    staleTime: Infinity,
  });
  return entry ? (read.data ?? null) : null;
}

/** The pinned outputs by the ids of their steps. */
export function pinnedSteps(pins: Pins | null): ReadonlyMap<string, unknown> {
  if (!pins || pins.outputs.size === 0) return NONE;
  return new Map([...pins.outputs].map(([name, value]) => [name.slice(name.lastIndexOf("/") + 1).replace(/\[\d+\]$/, ""), value]));
}
