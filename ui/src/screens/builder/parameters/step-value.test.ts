import { describe, expect, it } from "vitest";
import { documentValue, stepValue } from "./step-value";

const TEXT = `# weekly
name: x
steps:
  - id: a   # first
    tool: x:y
    parameters:
      id: not-a-step
      body: "{{ a.b }}\\t\\u00e9"
      n: 12
      big: 9007199254740993
      f: -1.5e3
      l: [1, 'it''s', {k: v, "q": ~}]
      text: |-
        one
          two
      kept: |+
        three

      folded: >
        four
        five

        six
      plain: some
        more text
      empty:
      on: no
      yes: true
      an: &here {a: 1, b: 2}
      al: *here
      merged:
        <<: *here
        b: 3
      t: !!str 5
  - id: outer
    loop:
      over: "{{ a.items }}"
      steps:
        - id: inner
          choose:
            - when: "{{ item.ok }}"
              steps: [{id: deep, tool: "t:u", parameters: {}}]
            - otherwise:
                - { id: else, wait: 5s }
`;

describe("the value of a step in the text", () => {
  it("reads every kind of scalar as the server does", () => {
    expect(stepValue(TEXT, "a")).toEqual({
      id: "a",
      tool: "x:y",
      parameters: {
        id: "not-a-step",
        body: "{{ a.b }}\té",
        n: 12,
        big: "9007199254740993",
        f: -1500,
        l: [1, "it's", { k: "v", q: null }],
        text: "one\n  two",
        kept: "three\n\n",
        folded: "four five\nsix\n",
        plain: "some more text",
        empty: null,
        on: "no",
        yes: true,
        an: { a: 1, b: 2 },
        al: { a: 1, b: 2 },
        merged: { a: 1, b: 3 },
        t: "5",
      },
    });
  });
  it("finds steps inside loops, cases and flow lists, and no other mapping with an id", () => {
    expect(stepValue(TEXT, "deep")).toEqual({ id: "deep", tool: "t:u", parameters: {} });
    expect(stepValue(TEXT, "else")).toEqual({ id: "else", wait: "5s" });
    expect(stepValue(TEXT, "not-a-step")).toBeNull();
    expect(Object.keys(stepValue(TEXT, "outer") ?? {})).toEqual(["id", "loop"]);
  });
  it("reads JSON, and a text with a mistake elsewhere", () => {
    expect(stepValue('{"steps": [{"id": "j", "tool": "a:b", "parameters": {"x": "\\ud83d\\ude00\\n", "y": [true]}}]}', "j")).toEqual({ id: "j", tool: "a:b", parameters: { x: "😀\n", y: [true] } });
    expect(stepValue("steps:\n  - id: a\n    tool: b\n  - id: c\n    tool: [", "a")).toEqual({ id: "a", tool: "b" });
  });
  it("ends on references in a circle", () => {
    expect(stepValue("steps:\n  - &s\n    id: a\n    x: *s\n", "a")).toMatchObject({ id: "a" });
  });
  it("reads 1,000 steps without looking at each pair of them", () => {
    const text = `steps:\n${Array.from({ length: 1000 }, (_, i) => `  - id: s${i}\n    tool: a:b\n    parameters: { x: "{{ s${i - 1}.y }}", n: ${i} }\n`).join("")}`;
    const from = performance.now();
    expect(stepValue(text, "s999")).toMatchObject({ parameters: { n: 999 } });
    expect(performance.now() - from).toBeLessThan(3000);
  });
});

describe("the whole text", () => {
  it("is read as a value, also below a step that has a mistake", () => {
    const value = documentValue("# c\ninput: { properties: &p { a: { type: string } } }\nalso: *p\nsteps:\n  - id: a\n    tool: [\n");
    expect(value?.input).toEqual({ properties: { a: { type: "string" } } });
    expect(value?.also).toEqual({ a: { type: "string" } });
    expect(documentValue('{"tools": {"a": {"returns": 1}}}')).toEqual({ tools: { a: { returns: 1 } } });
    expect([documentValue(""), documentValue("- a"), documentValue("text")]).toEqual([null, null, null]);
  });
});
