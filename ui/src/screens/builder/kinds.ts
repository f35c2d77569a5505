// The kinds of steps that can be added without a tool, as they are first written.
export interface Kind {
  kind: string;
  icon: string;
  words: string;
  step: Record<string, unknown>;
}

export const KINDS: readonly Kind[] = [
  { kind: "loop", icon: "i-loop", words: "runs steps once per item", step: { loop: { over: [], as: "item", steps: [] } } },
  { kind: "choose", icon: "i-choose", words: "runs the first case whose condition holds", step: { choose: [{ when: "{{ true }}", steps: [] }, { otherwise: [] }] } },
  { kind: "parallel", icon: "i-cmp", words: "runs branches at the same time", step: { parallel: [] } },
  { kind: "approve", icon: "i-person", words: "asks a person", step: { approve: { message: "Continue?" } } },
  { kind: "repeat", icon: "i-again", words: "runs steps until a condition holds", step: { repeat: { max_iterations: 10, until: "{{ true }}", steps: [] } } },
  { kind: "set", icon: "i-right", words: "names values for later steps", step: { set: { value: "" } } },
  { kind: "wait", icon: "i-time", words: "waits", step: { wait: "1s" } },
  { kind: "expand", icon: "i-comp", words: "runs a composition that an earlier step made", step: { expand: "{{ input.plan }}" } },
];

/** Kinds that take steps into a body. */
export const WRAPPERS = ["loop", "parallel", "choose", "repeat"] as const;
export type Wrapper = (typeof WRAPPERS)[number];
