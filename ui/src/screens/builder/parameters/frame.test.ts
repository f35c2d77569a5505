import { afterEach, describe, expect, it, vi } from "vitest";
import { serve } from "../testing";
import { DraftCompleter, frameOf, written } from "./frame";

afterEach(() => vi.unstubAllGlobals());

const TEXT = "steps:\n  - id: a\n    parameters:\n      body: old\n";
const text = { text: TEXT, name: "x.yaml", run: "r1" };
const start = TEXT.indexOf("old");

describe("completion of a draft", () => {
  it("asks about the draft in its place, and moves the answer into the draft", async () => {
    const server = serve({
      edit: () => ({ edits: [{ start, end: start + 3, text: '"{{ segue_draft }}"' }] }),
      complete: ({ at }) => ({ items: [{ label: "items", kind: "field", required: false, start: Number(at) - 2, end: at, text: "items" }] }),
    });
    const completer = new DraftCompleter(text, "a", "/parameters/body", false);
    const draft = 'x "{{ pulls.it }}';
    const items = await completer.complete(draft, 14, new AbortController().signal);
    expect(items).toMatchObject([{ start: 12, end: 14, text: "items" }]);
    const asked = server.requests.at(-1)?.body as { text: string; at: number; run: string };
    expect(asked.text).toBe(TEXT.replace("old", '"x \\"{{ pulls.it }}"'));
    expect(asked.text.slice(0, asked.at).endsWith("pulls.it")).toBe(true);
    expect(asked.run).toBe("r1");
    await completer.complete("{{ p }}", 4, new AbortController().signal);
    expect(server.requests.filter((one) => one.path === "edit")).toHaveLength(1);
  });

  it("puts braces around a condition", async () => {
    const server = serve({ edit: () => ({ edits: [{ start, end: start + 3, text: "'{{ segue_draft }}'" }] }), complete: ({ at }) => ({ items: [{ label: "n", kind: "field", required: false, start: at, end: at, text: "n" }] }) });
    const items = await new DraftCompleter(text, "a", "/when", true).complete("a == 'b' and c.", 15, new AbortController().signal);
    expect((server.requests.at(-1)?.body as { text: string }).text).toContain("'{{ a == ''b'' and c. }}'");
    expect(items).toMatchObject([{ start: 15, end: 15 }]);
  });

  it("offers nothing when the text does not allow the edit", async () => {
    serve({});
    expect(await new DraftCompleter(text, "a", "/when", true).complete("a", 1, new AbortController().signal)).toEqual([]);
  });

  it("writes a draft as the place asks for", () => {
    expect([written('a"\n', '"'), written("a'\n", "'"), written("a\nb", "")]).toEqual(['a\\"\\n', "a''\n", "a b"]);
    expect(frameOf("no mark")).toBeNull();
  });
});
