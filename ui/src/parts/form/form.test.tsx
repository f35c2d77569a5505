import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import * as some from "./fixtures";
import type { Schema } from "./schema";
import { SchemaForm } from "./SchemaForm";
import { useForm } from "./use-form";

afterEach(cleanup);
let sent: unknown;
function Whole({ schema, first }: { schema: Schema; first?: unknown }) {
  const form = useForm(schema, first);
  return (
    <>
      <SchemaForm form={form} label="Arguments" />
      <button type="button" onClick={() => (sent = form.submit())}>Send</button>
    </>
  );
}
function open(schema: Schema, first?: unknown): void {
  sent = undefined;
  render(<Whole schema={schema} first={first} />);
}
const type = (name: string | RegExp, text: string) => fireEvent.change(screen.getByLabelText(name), { target: { value: text } });
const press = (name: string | RegExp) => fireEvent.click(screen.getByRole("button", { name }));

describe("the form on screen", () => {
  it("sends what is filled in, with the defaults", () => {
    open(some.withDefaults);
    type("messageType", "1");
    press("Send");
    expect(sent).toEqual({ value: { duration: 10, steps: 5, includeImage: false, messageType: "success" } });
  });

  it("says what is missing and sends nothing", () => {
    open(some.plainTool);
    type("a", "x");
    press("Send");
    expect(sent).toBeNull();
    expect(screen.getByRole("alert").textContent).toBe("2 problems: a must be a number; b is required");
    expect(screen.getByLabelText("b").getAttribute("aria-describedby")).not.toBeNull();
  });

  it("adds and removes items and optional objects", () => {
    open(some.recursive);
    type("op", "0");
    press("Add not");
    fireEvent.click(screen.getAllByRole("button", { name: "Add an item to of" })[0] as HTMLElement);
    expect(screen.getAllByLabelText("op")).toHaveLength(3);
    press("Remove item 0 of of");
    press("Remove not");
    press("Send");
    expect(sent).toEqual({ value: { op: "and", of: [] } });
  });

  it("changes the alternative, and the value with it", () => {
    open(some.shapes);
    fireEvent.click(screen.getByRole("radio", { name: "kind: box" }));
    type("w", "2");
    type("h", "3");
    type("owner", "ada");
    press("Send");
    expect(sent).toEqual({ value: { shape: { kind: "box", w: 2, h: 3 }, owner: "ada" } });
  });

  it("opens the alternative that a given value fits", () => {
    open(some.shapes, { owner: "ada", shape: "round" });
    expect(screen.getByRole("radio", { name: "By name" }).getAttribute("aria-checked")).toBe("true");
  });

  it("takes a member as JSON, and null where it is allowed", () => {
    open(some.generated);
    type("city", "Bern");
    const modes = (name: string) => screen.getByRole("radiogroup", { name });
    expect(modes("How days is written").querySelector("[aria-checked=true]")?.textContent).toBe("Null");
    fireEvent.click([...modes("How tags is written").querySelectorAll("button")].at(-1) as HTMLElement);
    type("tags", '["a", "b"]');
    press("Add extra");
    type("Name of another member of extra", "k");
    press("Add");
    press("Send");
    expect(sent).toEqual({ value: { place: { city: "Bern" }, unit: null, days: null, tags: ["a", "b"], extra: { k: "" } } });
  });

  it("falls back to JSON for what it cannot draw, and says why", () => {
    open(some.loop);
    type("Arguments as JSON", '{"a": 1}');
    press("Send");
    expect(sent).toEqual({ value: { a: 1 } });
    expect(document.body.textContent).toContain("its schema refers to itself");
  });

  it("draws every schema, and hostile names as codes", () => {
    for (const schema of Object.values(some) as Schema[]) {
      open(schema);
      cleanup();
    }
    open(some.hostile);
    expect(document.body.textContent).toContain("U+202E");
    expect(document.querySelector("img")).toBeNull();
  });
});
