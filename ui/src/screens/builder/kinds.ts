// The kinds of steps that can be added without a tool, as they are first written.
export interface Kind {
  kind: string;
  icon: string;
  words: string;
  /** The id of a new one. */
  id: string;
  step: Record<string, unknown>;
}

export const KINDS: readonly Kind[] = [
  { kind: "loop", icon: "i-loop", words: "runs steps once per item", id: "each", step: { loop: { over: [], as: "item", steps: [] } } },
  { kind: "choose", icon: "i-choose", words: "runs the first case whose condition holds", id: "choice", step: { choose: [{ when: "{{ true }}", steps: [] }, { otherwise: [] }] } },
  { kind: "parallel", icon: "i-cmp", words: "runs branches at the same time", id: "branches", step: { parallel: [] } },
  { kind: "approve", icon: "i-person", words: "asks a person", id: "approval", step: { approve: { message: "Continue?" } } },
  { kind: "repeat", icon: "i-again", words: "runs steps until a condition holds", id: "rounds", step: { repeat: { max_iterations: 10, until: "{{ true }}", steps: [] } } },
  { kind: "set", icon: "i-right", words: "names values for later steps", id: "values", step: { set: { value: "" } } },
  { kind: "wait", icon: "i-time", words: "waits", id: "pause", step: { wait: "1s" } },
  { kind: "expand", icon: "i-comp", words: "runs a composition that an earlier step made", id: "expanded", step: { expand: "{{ input.plan }}" } },
];

/** Kinds that take steps into a body. */
export const WRAPPERS = ["loop", "parallel", "choose", "repeat"] as const;
export type Wrapper = (typeof WRAPPERS)[number];
