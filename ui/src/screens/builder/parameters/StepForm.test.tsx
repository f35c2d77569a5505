import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { useState } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Tool } from "@/api/types";
import * as some from "@/parts/form/fixtures";
import { setAt } from "@/parts/form/state";
import { DRAG, type Edit } from "../model";
import { accessibility, contextOf, serve, stubMeasuring } from "../testing";
import { StepForm } from "./StepForm";

let edits: Edit[] = [];
let refuse: string | null = null;
const toolOf = (input_schema: unknown): Tool => ({ id: "s:t", description: "", input_schema, output_schema: null, annotations: {}, scopes: [], tags: [], effect: "reads", rollback: null, confirms: false, hash: "h" });

/** The text's part: it takes each edit, and says what the step is now. */
function Whole({ first, tool, onField }: { first: Record<string, unknown>; tool: Tool | null; onField?: (field: string) => void }) {
  const [value, setValue] = useState(first);
  const context = contextOf(edits, {
    edit: (edit) => {
      edits.push(edit);
      if (refuse !== null) return Promise.resolve(refuse);
      if (edit.kind === "set_field" || edit.kind === "clear_field") {
        const keys = edit.field.split("/").slice(1).map((key) => (/^\d+$/.test(key) ? Number(key) : key));
        setValue((now) => setAt(now, keys, edit.kind === "set_field" ? edit.value : undefined) as Record<string, unknown>);
      }
      return Promise.resolve(null);
    },
  });
  return (
    <>
      <StepForm context={context} step="release" value={value} tool={tool} others={["pulls", "notes"]} onField={onField} />
      <button type="button" onClick={() => setValue(setAt(value, ["parameters", "a"], "from outside") as Record<string, unknown>)}>Undo</button>
    </>
  );
}

const open = (first: Record<string, unknown>, schema: unknown, onField?: (field: string) => void) => render(<Whole first={{ id: "release", tool: "s:t", ...first }} tool={schema === null ? null : toolOf(schema)} onField={onField} />);
const type = (name: string | RegExp, text: string) => fireEvent.change(screen.getByLabelText(name), { target: { value: text } });
const leave = (name: string | RegExp) => fireEvent.blur(screen.getByLabelText(name));
const mode = (name: string, value: string) => fireEvent.click(screen.getByRole("radiogroup", { name: `How ${name} is written` }).querySelector(`button:nth-child(${["Value", "Expr", "JSON"].indexOf(value) + 1})`) as HTMLElement);

beforeEach(() => {
  edits = [];
  refuse = null;
  stubMeasuring();
  serve({ preview: () => ({ fields: [{ field: "", type: "string", value: "site" }] }), complete: () => ({ items: [] }), edit: () => ({ edits: [] }) });
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const two = { type: "object", properties: { a: { type: "string", description: "The first" }, n: { type: "integer", default: 5 } }, required: ["a"] };

describe("the form of a step", () => {
  it("turns what is typed into one edit of one field", async () => {
    vi.useFakeTimers();
    open({}, two);
    type("a", "x");
    type("a", "xy");
    expect(edits).toEqual([]);
    await act(() => vi.advanceTimersByTimeAsync(300));
    expect(edits).toEqual([{ kind: "set_field", step: "release", field: "/parameters", value: { a: "xy" } }]);
    type("n", "7");
    leave("n");
    expect(edits.slice(1)).toEqual([{ kind: "set_field", step: "release", field: "/parameters/n", value: 7 }]);
    type("n", "");
    leave("n");
    expect(edits.slice(2)).toEqual([{ kind: "clear_field", step: "release", field: "/parameters/n" }]);
  });

  it("escapes names in pointers", () => {
    open({ parameters: { "a/b~c": "x" } }, { type: "object", properties: { "a/b~c": { type: "string" } } });
    type("a/b~c", "y");
    leave("a/b~c");
    expect(edits).toEqual([{ kind: "set_field", step: "release", field: "/parameters/a~1b~0c", value: "y" }]);
  });

  it("writes no default into the text, and shows it", () => {
    open({ parameters: { a: "x" } }, two);
    expect(document.body.textContent).toContain("not set: 5 is the default");
    expect(edits).toEqual([]);
  });

  it("sends no edit for JSON that is not finished", () => {
    open({ parameters: { a: "x" } }, two);
    mode("a", "JSON");
    type("a", '{"k": ');
    leave("a");
    expect(edits).toEqual([]);
    expect(document.body.textContent).toContain("not JSON");
    type("a", '"z"');
    leave("a");
    expect(edits).toEqual([{ kind: "set_field", step: "release", field: "/parameters/a", value: "z" }]);
  });

  it("takes over what the text says, but not while something is typed", async () => {
    vi.useFakeTimers();
    open({ parameters: { a: "x" } }, two);
    fireEvent.click(screen.getByText("Undo"));
    expect((screen.getByLabelText("a") as HTMLTextAreaElement).value).toBe("from outside");
    type("a", "typing");
    fireEvent.click(screen.getByText("Undo"));
    expect((screen.getByLabelText("a") as HTMLTextAreaElement).value).toBe("typing");
    await act(() => vi.advanceTimersByTimeAsync(300));
    expect(edits).toHaveLength(1);
  });

  it("does not take what comes back late of an older change for a change from outside", async () => {
    vi.useFakeTimers();
    const late: (() => void)[] = [];
    function Late() {
      const [value, setValue] = useState<Record<string, unknown>>({ id: "release", tool: "s:t", parameters: { a: "x" } });
      const context = contextOf(edits, {
        edit: (edit) => {
          if (edit.kind === "set_field") late.push(() => setValue((now) => setAt({ ...now }, ["parameters", "a"], edit.value) as Record<string, unknown>));
          return Promise.resolve(null);
        },
      });
      return <StepForm context={context} step="release" value={{ ...value }} tool={toolOf(two)} others={[]} />;
    }
    render(<Late />);
    const shown = () => (screen.getByLabelText("a") as HTMLTextAreaElement).value;
    for (const text of ["xy", "xyz"]) {
      type("a", text);
      leave("a");
      await act(() => vi.advanceTimersByTimeAsync(10));
    }
    expect(late).toHaveLength(2);
    act(() => late[0]?.());
    expect(shown()).toBe("xyz");
    act(() => late[1]?.());
    expect(shown()).toBe("xyz");
  });

  it("goes back to the text when an edit is refused, and says why", async () => {
    open({ parameters: { a: "x" } }, two);
    refuse = "the text has <b>changed</b>";
    type("a", "y");
    leave("a");
    await waitFor(() => expect(screen.getByRole("alert").textContent).toContain("the text has <b>changed</b>"));
    expect((screen.getByLabelText("a") as HTMLTextAreaElement).value).toBe("x");
  });

  it("shows a text with an expression in the expression editor, whatever the type of the field", async () => {
    open({ parameters: { a: "x", n: "{{ pulls.count }}" } }, two);
    await waitFor(() => expect(document.querySelector("[data-field='/parameters/n'] .exprfield")?.shadowRoot?.querySelector(".cm-content")?.textContent).toBe("{{ pulls.count }}"));
    await waitFor(() => expect(document.querySelector("[data-field='/parameters/n'] .prev")?.textContent).toContain('"site"'));
    expect(document.querySelector("[data-field='/parameters/n'] .prev")?.textContent).toContain("must be integer");
    expect(document.body.textContent).not.toContain("2 problems");
  });

  it("connects a dropped value, and says which field has the focus", () => {
    const onField = vi.fn();
    open({ parameters: {} }, two, onField);
    fireEvent.focus(screen.getByLabelText("a"));
    expect(onField).toHaveBeenCalledWith("/parameters/a");
    const field = document.querySelector("[data-field='/parameters/a']") as HTMLElement;
    const data = { types: [DRAG.field], getData: () => JSON.stringify({ step: "pulls", path: "items[0].title", expression: "{{ pulls.items[0].title }}" }) };
    fireEvent.drop(field, { dataTransfer: data });
    fireEvent.drop(field, { dataTransfer: { ...data, getData: () => JSON.stringify({ step: null, path: "repo", expression: "{{ input.repo }}" }) } });
    fireEvent.drop(field, { dataTransfer: { ...data, getData: () => '{"step": 7}' } });
    expect(edits).toEqual([
      { kind: "connect", from: "pulls", to: "release", reference: { path: "items[0].title", field: "/parameters/a" } },
      { kind: "set_field", step: "release", field: "/parameters/a", value: "{{ input.repo }}" },
    ]);
  });

  it("has the other fields of a step, and those of its kind", () => {
    render(<Whole first={{ id: "l", loop: { over: "{{ pulls.items }}", as: "pull", steps: [{ id: "inner", tool: "a:b" }] }, depends_on: "notes" }} tool={null} />);
    type("as", "one");
    leave("as");
    fireEvent.click(screen.getByRole("button", { name: "Do not wait for notes" }));
    leave("depends_on");
    type("depends_on", "pulls");
    leave("depends_on");
    expect(edits).toEqual([
      { kind: "set_field", step: "release", field: "/loop/as", value: "one" },
      { kind: "clear_field", step: "release", field: "/depends_on" },
      { kind: "set_field", step: "release", field: "/depends_on", value: ["pulls"] },
    ]);
    expect(document.body.textContent).not.toContain("inner");
  });

  it("offers expressions only where the engine evaluates them", () => {
    render(<Whole first={{ id: "q", approve: { message: "Go on?", timeout: "1h" }, output_key: "answer" }} tool={null} />);
    const modes = (name: string) => screen.queryByRole("radiogroup", { name: `How ${name} is written` })?.textContent;
    expect([modes("message"), modes("timeout"), modes("output_key")]).toEqual(["TextJSON", "ValueJSON", "ValueJSON"]);
    expect(document.querySelector("[data-field='/approve/message'] .exprfield")).not.toBeNull();
    fireEvent.click(screen.getByText("Failure and rollback"));
    expect(document.querySelector("[data-field='/rollback']")).toBeNull();
  });

  it("edits the conditions of choose without its steps", () => {
    render(<Whole first={{ id: "c", choose: [{ when: "a.b > 1", steps: [] }, { otherwise: [] }] }} tool={null} />);
    expect(document.querySelector("[data-field='/choose/0/when']")).not.toBeNull();
    expect(document.querySelector("[data-field='/choose/1/when']")).toBeNull();
  });

  it("draws every schema of servers and of people who mean harm", () => {
    for (const schema of Object.values(some)) {
      open({ parameters: { a: "{{ x }}", shape: { kind: "box", w: "{{ y }}" } } }, schema);
      cleanup();
    }
    expect(edits).toEqual([]);
    open({ parameters: {} }, some.hostile);
    expect(document.querySelector("img")).toBeNull();
    expect(document.body.textContent).toContain("U+202E");
  });

  it("stays quick with huge enums, 200 alternatives, circles, and texts of 10 MB", () => {
    const schema = {
      type: "object",
      $defs: { node: { type: "object", properties: { next: { $ref: "#/$defs/node" }, other: { $ref: "#/$defs/node" } } }, self: { $ref: "#/$defs/self" } },
      properties: {
        many: { enum: Array.from({ length: 20_000 }, (_, i) => `value-${i}`) },
        one: { oneOf: Array.from({ length: 200 }, (_, i) => ({ type: "object", properties: { kind: { const: `k${i}` }, v: { type: "string" } }, required: ["kind"] })) },
        node: { $ref: "#/$defs/node" },
        self: { $ref: "#/$defs/self" },
        text: { type: "string" },
      },
    };
    const from = performance.now();
    open({ parameters: { many: "value-19999", one: { kind: "k199", v: "x" }, node: { next: { next: {} } }, text: "<script>\u202e\u0000".repeat(800_000) } }, schema);
    expect(document.querySelectorAll("option").length).toBeLessThan(1500);
    expect(screen.getByLabelText("v")).toBeTruthy();
    expect(document.body.textContent).toContain("too long for a field");
    expect(document.querySelector("script")).toBeNull();
    type("many", "value-7");
    leave("many");
    expect(edits.at(-1)).toMatchObject({ field: "/parameters/many", value: "value-7" });
    expect(performance.now() - from).toBeLessThan(4000);
  });

  it("has no finding of axe", async () => {
    open({ parameters: { a: "{{ input.x }}" }, depends_on: ["pulls"], when: "a.b", on_failure: { action: "continue" } }, two);
    await waitFor(() => expect(document.querySelector(".exprfield")?.shadowRoot?.querySelector(".cm-content")).not.toBeNull());
    expect(await accessibility()).toEqual([]);
  });
});
