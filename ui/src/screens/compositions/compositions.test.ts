import { describe, expect, it } from "vitest";
import type { CompositionDetail, CompositionSummary, DiagnosticView } from "@/api/types";
import { pathOf, planRows } from "@/lib/plan-rows";
import { filter } from "./index";
import { looksOf, marksOf, placesOf, notesOf, spanOf, stepAt } from "./places";

const span = (step: string, line: number, end_line: number) => ({ step, line, column: 3, end_line, end_column: 20 });
const spans = [span("each", 4, 12), span("each/read", 6, 8), span("each/files", 9, 12), span("last", 13, 14)];
const finding = (severity: "error" | "warning" | "hint", line: number, message = "m"): DiagnosticView => ({ code: "limit", severity, message, file: "a.yaml", line, column: 5, end_line: line, end_column: 9, help: null, url: "" });

describe("places in the text", () => {
  it("finds the innermost step of a line", () => {
    expect([3, 4, 6, 8, 9, 12, 13, 15].map((line) => stepAt(spans, line))).toEqual([null, "each", "each/read", "each/read", "each/files", "each/files", "last", null]);
    expect(spanOf(spans, "each/files")?.line).toBe(9);
    expect(spanOf(spans, "gone")).toBeNull();
  });
  it("knows the path of a step by its id, but not by one of a called composition", () => {
    const step = (id: string, tool: string | null, inner: unknown[] = []) => ({ id, tool, bodies: [{ label: "", steps: inner }] });
    const detail = { spans: [span("each", 4, 12), span("put", 6, 8), span("greet", 13, 14)], plan: { steps: [step("each", null, [step("put", "a:b")]), step("greet", "composition:x", [step("put", "a:c")])] } } as unknown as CompositionDetail;
    expect(placesOf(detail).map((one) => one.step)).toEqual(["each", "each/put", "greet"]);
  });
  it("marks findings, also those without an extent, over the selected step", () => {
    const marks = marksOf([finding("error", 7), { ...finding("hint", 9), end_column: 5 }], spans[1] ?? null);
    expect(marks.map((mark) => [mark.tone, mark.from.line, mark.to.column - mark.from.column])).toEqual([["selected", 6, 17], ["failed", 7, 4], ["warning", 9, 1]]);
  });
  it("has one note per line, as bad as its worst finding", () => {
    expect(notesOf([finding("error", 7, "a"), finding("warning", 7, "b"), finding("hint", 9, "c")])).toEqual([
      { line: 7, tone: "failed", text: "a\nb" },
      { line: 9, tone: "warning", text: "c" },
    ]);
  });
  it("puts a badge on the step that a finding is in", () => {
    const looks = looksOf([finding("error", 7), finding("error", 8), finding("warning", 5), finding("warning", 1)], spans);
    expect([...looks].map(([step, look]) => `${step}: ${look.corner?.text}`)).toEqual(["each/read: 2 errors", "each: 1 warning"]);
  });
});

describe("lists", () => {
  it("needs every word of a search", () => {
    const all = [{ name: "release-notes", description: "Publishes them" }, { name: "hello", description: "Greets" }] as CompositionSummary[];
    expect(filter(all, "PUBLISH notes").map((one) => one.name)).toEqual(["release-notes"]);
    expect(filter(all, undefined)).toHaveLength(2);
  });
  it("names a step of a plan as the graph does", () => {
    const step = (id: string, more = {}) => ({ id, kind: "tool", tool: null, needs: [], effect: "none", rollback: { kind: "not_needed" }, confirms: false, ...more }) as never;
    const rows = planRows([step("a", { bodies: [{ label: "x", steps: [step("b")] }, { label: "y", steps: [step("c")] }] })]);
    expect(rows.filter((row) => row.kind === "step").map((row) => pathOf(row.key))).toEqual(["a", "a/b", "a/c"]);
  });
});
