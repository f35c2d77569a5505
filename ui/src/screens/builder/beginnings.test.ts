import { describe, expect, it } from "vitest";
import { stepsOfCalls } from "./beginnings";
import { documentValue } from "./parameters/step-value";

describe("a recording without its composition", () => {
  it("becomes the calls that it has, one after the other", () => {
    const text = stepsOfCalls("hello", `tests:
  - name: recorded
    expect:
      calls:
        - { step: greet, tool: "builtin:echo", arguments: { text: "a \\"b\\": {{ c }}" } }
        - { step: "each[0]/say", tool: "builtin:echo", arguments: {} }
        - { step: "each[1]/say", tool: "builtin:echo" }
        - { tool: "files:read file", arguments: { n: 1 } }
`);
    expect(documentValue(text ?? "")).toMatchObject({
      name: "hello",
      steps: [
        { id: "greet", tool: "builtin:echo", parameters: { text: 'a "b": {{ c }}' } },
        { id: "say", depends_on: "greet" },
        { id: "say_2", depends_on: "say" },
        { id: "read_file", tool: "files:read file", parameters: { n: 1 }, depends_on: "say_2" },
      ],
    });
    expect([stepsOfCalls("x", ""), stepsOfCalls("x", "tests: [{ name: a }]")]).toEqual([null, null]);
  });
});
