import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { queryClient, sessionQuery } from "@/api/queries";
import type { PlanStepView, Session } from "@/api/types";
import type { Analysis, Edit } from "../model";
import { accessibility, contextOf, serve, stubDialogs, stubMeasuring } from "../testing";
import { ProposalPanel } from "./ProposalPanel";
import { wordsFor } from "./queries";
import { stepEdits, type Sides } from "./step-edits";

const step = (id: string, more: Partial<PlanStepView> = {}): PlanStepView => ({ id, kind: "tool", tool: "a:b", needs: [], effect: "reads", rollback: { kind: "not_needed" }, confirms: false, ...more });
const NOW = `# mine\nname: x\nsteps:\n  - id: a\n    tool: a:b   # keep\n    parameters: { n: 1, old: true }\n  - id: l\n    loop:\n      over: "{{ a.items }}"\n      steps:\n        - id: in\n          tool: a:b\n`;
const THEN = `name: x\nsteps:\n  - id: a\n    tool: a:b\n    parameters: { n: 2 }\n  - id: new\n    tool: c:d\n    parameters: { x: "{{ a.y }}" }\n  - id: l\n    loop:\n      over: "{{ new.items }}"\n      steps:\n        - id: first\n          tool: e:f\n        - id: in\n          tool: a:b\n`;
const loop = (inner: PlanStepView[]) => step("l", { kind: "loop", tool: null, bodies: [{ label: "each", steps: inner }] });
const sides: Sides = { current: { text: NOW, steps: [step("a"), loop([step("in")])] }, proposed: { text: THEN, steps: [step("a"), step("new"), loop([step("first"), step("in")])] } };

describe("accepting a step of a proposal", () => {
  it("is the edits that its change means", () => {
    expect(stepEdits({ step: "a", change: "changed" }, sides)).toEqual({
      ok: true,
      edits: [
        { kind: "set_field", step: "a", field: "/parameters/n", value: 2 },
        { kind: "clear_field", step: "a", field: "/parameters/old" },
      ],
    });
    expect(stepEdits({ step: "l", change: "changed" }, sides)).toEqual({ ok: true, edits: [{ kind: "set_field", step: "l", field: "/loop/over", value: "{{ new.items }}" }] });
    expect(stepEdits({ step: "new", change: "added" }, sides)).toEqual({ ok: true, edits: [{ kind: "add_step", step: { id: "new", tool: "c:d", parameters: { x: "{{ a.y }}" } }, place: { at: "after", step: "a" } }] });
    expect(stepEdits({ step: "first", change: "added" }, sides)).toMatchObject({ edits: [{ place: { at: "before", step: "in" } }] });
    expect(stepEdits({ step: "a", change: "removed" }, sides)).toEqual({ ok: true, edits: [{ kind: "remove_step", step: "a" }] });
    expect(stepEdits({ step: "b", change: "renamed", was: "a" }, sides)).toEqual({ ok: true, edits: [{ kind: "rename_step", step: "a", to: "b" }] });
  });
  it("says why a step cannot be taken alone", () => {
    const without: Sides = { ...sides, current: { text: "steps: []", steps: [] } };
    expect(stepEdits({ step: "first", change: "added" }, without)).toEqual({ ok: false, why: "it comes with the step that it is inside of" });
    expect(stepEdits({ step: "in", change: "changed" }, sides)).toEqual({ ok: false, why: "only the steps inside of it differ" });
  });
});

let edits: Edit[] = [];
const onText = vi.fn();
const details = { plan_id: "p1", request_id: "r", version: 1, versions: ["p1"], query: "q", state: "pending", created_at: "2026-01-01T00:00:00Z", origin: { model: { model: "m", rounds: 1, usage: {}, tools_shown: 1, tools: 1 } }, run_id: null, warnings: ["the channel is a <b>guess</b>\u202e"], plan: { reasoning: "It posts <i>once</i>." }, checked: { steps: [step("a", { effect: "unknown" })] } };
const routes = (more: Record<string, (body: Record<string, unknown>) => unknown> = {}) =>
  serve({
    "plans/ask": () => details,
    "plans/p1": () => new Response(null, { status: 204 }),
    "plans/p1/composition": () => new Response(THEN, { headers: { "Content-Type": "application/yaml" } }),
    compare: () => ({ steps: [{ step: "new", change: "added" }, { step: "a", change: "changed", fields: ["parameters"] }], interface: [] }),
    analyze: () => ({ steps: sides.proposed.steps }),
    ...more,
  });

beforeEach(() => {
  edits = [];
  onText.mockReset();
  stubMeasuring();
  stubDialogs();
  queryClient.setQueryData(sessionQuery.queryKey, { principal: "ada", rights: ["read", "compose", "write"] } as Session);
});
afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

const open = () =>
  render(
    <QueryClientProvider client={queryClient}>
      <ProposalPanel context={contextOf(edits, { text: NOW, analysis: { steps: sides.current.steps } as Analysis })} composition="x" onText={onText} onClose={() => {}} />
    </QueryClientProvider>,
  );
async function propose(): Promise<void> {
  fireEvent.change(screen.getByLabelText("What should happen?"), { target: { value: "post it" } });
  fireEvent.click(screen.getByRole("button", { name: "Propose" }));
  await screen.findByRole("list", { name: "Changed steps" });
}

describe("a plan from words in the builder", () => {
  it("sends the text with a change, and the words alone for something new", () => {
    expect(wordsFor("w", null)).toBe("w");
    expect(wordsFor("w", NOW)).toContain(NOW);
  });

  it("shows reasons and unknowns as text, and changes nothing by itself", async () => {
    const server = routes();
    open();
    await propose();
    expect(document.body.textContent).toContain("It posts <i>once</i>.");
    expect(document.body.textContent).toContain("a <b>guess</b>U+202E");
    expect(document.body.textContent).toContain("The effect is unknown: a");
    expect(document.querySelector(".proposalreview i, .unknowns b")).toBeNull();
    expect([edits, onText.mock.calls]).toEqual([[], []]);
    expect(server.requests[0]?.body).toMatchObject({ fresh: true, query: wordsFor("post it", NOW) });
    expect(await accessibility()).toEqual([]);
  });

  it("takes one step as edits", async () => {
    routes();
    open();
    await propose();
    const button = screen.getByRole("button", { name: "Accept: new added" });
    await waitFor(() => expect(button.getAttribute("aria-disabled")).toBeNull());
    fireEvent.click(button);
    await waitFor(() => expect(edits).toMatchObject([{ kind: "add_step", place: { at: "after", step: "a" } }]));
    expect(onText).not.toHaveBeenCalled();
  });

  it("takes one change of the text, or all", async () => {
    routes();
    open();
    await propose();
    fireEvent.click(screen.getByRole("button", { name: "Accept change 1" }));
    expect(onText).toHaveBeenLastCalledWith(NOW.replace("# mine\n", ""));
    fireEvent.click(screen.getByRole("button", { name: "Accept all" }));
    expect(onText).toHaveBeenLastCalledWith(THEN);
  });

  it("deletes a rejected plan and leaves the text alone", async () => {
    const server = routes();
    open();
    await propose();
    fireEvent.click(screen.getByRole("button", { name: "Reject" }));
    await waitFor(() => expect(screen.queryByRole("list", { name: "Changed steps" })).toBeNull());
    expect(server.requests.at(-1)?.path).toBe("plans/p1");
    expect([edits, onText.mock.calls]).toEqual([[], []]);
  });

  it("says how to name a model when there is none", async () => {
    routes({ "plans/ask": () => new Response(JSON.stringify({ code: "llm", detail: "no model is configured to plan with" }), { status: 502, headers: { "Content-Type": "application/problem+json" } }) });
    open();
    fireEvent.change(screen.getByLabelText("What should happen?"), { target: { value: "post it" } });
    fireEvent.click(screen.getByRole("button", { name: "Propose" }));
    expect(await screen.findByText("No model is configured")).toBeTruthy();
  });
});
