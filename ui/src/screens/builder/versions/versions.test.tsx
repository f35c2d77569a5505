import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { queryClient } from "@/api/queries";
import type { PlanStepView } from "@/api/types";
import { hunks, lines } from "@/lib/line-diff";
import { withGhosts } from "../steps";
import { accessibility, serve, stubDialogs, stubMeasuring } from "../testing";
import { ConflictDialog, type ConflictDialogProps } from "./ConflictDialog";
import { diffRows } from "./diff-rows";
import { changeLooks } from "./GraphDiff";
import { proposed } from "./merge";
import { TextDiff } from "./TextDiff";
import { VersionDiff } from "./VersionDiff";

beforeEach(() => {
  stubMeasuring();
  stubDialogs();
  serve({ compare: () => ({ steps: [], interface: [] }), analyze: () => ({ steps: [] }) });
});
afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

const show = (node: ReactNode) => render(<QueryClientProvider client={queryClient}>{node}</QueryClientProvider>);
const compared = (before: string, after: string) => ({ before: lines(before), after: lines(after), hunks: hunks(lines(before), lines(after)) });
const numbered = (n: number, change: (i: number) => string | null = () => null) => Array.from({ length: n }, (_, i) => change(i) ?? `line ${i}\n`).join("");

describe("rows of a text diff", () => {
  it("fold what did not change, and number the lines of both sides", () => {
    const both = compared(numbered(40), numbered(40, (i) => (i === 20 ? "new\nmore\n" : null)));
    const rows = diffRows(both, new Set());
    expect(rows.map((row) => row.kind)).toEqual(["gap", "same", "same", "same", "hunk", "removed", "added", "added", "same", "same", "same", "gap"]);
    expect(rows[1]).toMatchObject({ before: 18, after: 18 });
    expect(rows[8]).toMatchObject({ before: 22, after: 23, text: "line 21\n" });
    expect(diffRows(both, new Set([0, 1]))).toHaveLength(40 + 3);
  });

  it("are few for a text of 100,000 lines, and hostile lines are text", () => {
    const before = numbered(100_000);
    const after = before.replace("line 500\n", `<img src=x>\u202e${"y".repeat(1_000_000)}\n`);
    render(<TextDiff compared={compared(before, after)} label="diff" />);
    expect(document.querySelector("img")).toBeNull();
    expect(document.body.textContent).toContain("U+202E");
    expect(document.querySelectorAll(".dline").length).toBeLessThan(60);
    fireEvent.click(screen.getByText("Show 497 lines that did not change"));
    expect(screen.queryByText("Show 497 lines that did not change")).toBeNull();
  });

  it("say with words what was added and removed", () => {
    render(<TextDiff compared={compared("a\nb\n", "a\nc\n")} label="diff" />);
    expect(document.body.textContent).toContain("removed: b");
    expect(document.body.textContent).toContain("added: c");
    expect(document.body.textContent).toContain("Change 1: 1 line removed, 1 line added");
  });
});

describe("the difference of two versions", () => {
  it("lists changed steps, and flags what breaks callers of the tool", async () => {
    const server = serve({ compare: () => ({ steps: [{ step: "notes", change: "renamed", was: "note" }, { step: "tag", change: "changed", fields: ["parameters", "retry"] }], interface: [{ breaking: true, message: "input `repo` is required now" }, { breaking: false, message: "output `url` is new" }] }) });
    show(<VersionDiff before={{ label: "saved", text: "a\n" }} after={{ label: "now", text: "b\n" }} name="x.yaml" />);
    const breaking = await screen.findByRole("group", { name: "Breaking changes of the tool" });
    expect(breaking.textContent).toContain("input `repo` is required now");
    const list = screen.getByRole("list", { name: "Changed steps" });
    expect(list.textContent).toContain("notesrenamed from note");
    expect(list.textContent).toContain("tagchangedparameters, retry");
    expect(server.requests[0]?.body).toEqual({ before: "a\n", after: "b\n", name: "x.yaml" });
    expect(await accessibility()).toEqual([]);
  });

  it("asks the server for nothing when the texts are the same", async () => {
    const server = serve({});
    show(<VersionDiff before={{ label: "saved", text: "a" }} after={{ label: "now", text: "a" }} name={null} />);
    expect(await screen.findByText("The texts are the same.")).toBeTruthy();
    expect(server.requests).toEqual([]);
  });
});

const step = (id: string): PlanStepView => ({ id, kind: "tool", tool: "a:b", needs: [], effect: "reads", rollback: { kind: "not_needed" }, confirms: false });

describe("the graph of two versions", () => {
  it("marks what was added, changed and renamed, and draws ghosts of what was removed", () => {
    const merged = withGhosts([step("a"), step("new"), step("c")], [step("a"), step("gone"), step("b")], new Map([["b", "c"]]));
    const looks = changeLooks(merged, [
      { step: "a", change: "changed" },
      { step: "new", change: "added" },
      { step: "c", change: "renamed", was: "b" },
      { step: "gone", change: "removed" },
    ]);
    expect([...looks].map(([path, look]) => [path, look.corner?.text, look.ghost ?? false])).toEqual([
      ["gone", "removed", true],
      ["a", "changed", false],
      ["new", "added", false],
      ["c", "was b", false],
    ]);
  });
});

describe("a conflict with the disk", () => {
  const base = numbered(30);
  const disk = base.replace("line 3\n", "disk 3\n").replace("line 25\n", "");
  const mine = base.replace("line 12\n", "mine 12\n");
  const both = base.replace("line 3\n", "disk 3\n").replace("line 25\n", "").replace("line 12\n", "mine 12\n");
  const open = (more: Partial<ConflictDialogProps> = {}) => {
    const calls = { onWrite: vi.fn(), onTake: vi.fn(), onClose: vi.fn() };
    show(<ConflictDialog path="x.yaml" disk={{ text: disk, hash: "h2" }} mine={mine} base={base} busy={false} {...calls} {...more} />);
    return calls;
  };
  const press = (name: string) => fireEvent.click(screen.getByRole("button", { name }));

  it("proposes the side that changed each place", () => {
    const { after, hunks: all } = compared(disk, mine);
    expect(proposed(after, all, base)).toEqual(["disk", "mine", "disk"]);
    expect(proposed(after, all, null)).toEqual(["mine", "mine", "mine"]);
    const clash = compared(base.replace("line 5\n", "disk 5\n"), base.replace("line 5\n", "mine 5\n"));
    expect(proposed(clash.after, clash.hunks, base)).toEqual(["mine"]);
  });

  it("saves the merge over the hash on disk", () => {
    const { onWrite } = open();
    press("Save the merge");
    expect(onWrite).toHaveBeenCalledWith(both, "h2");
  });

  it("lets the person choose a side for each change", () => {
    const { onWrite } = open();
    fireEvent.click(within(screen.getByRole("radiogroup", { name: "Side of change 1" })).getByRole("radio", { name: "Mine" }));
    press("Save the merge");
    expect(onWrite).toHaveBeenCalledWith(both.replace("disk 3\n", "line 3\n"), "h2");
  });

  it("shows which lines are kept", () => {
    open();
    const line = (text: string) => screen.getByText(text).closest(".dline")?.className;
    expect([line("disk 3"), line("line 3"), line("mine 12")]).toEqual(["dline kept", "dline dropped", "dline kept"]);
    fireEvent.click(within(screen.getByRole("radiogroup", { name: "Side of change 1" })).getByRole("radio", { name: "Mine" }));
    expect([line("disk 3"), line("line 3")]).toEqual(["dline dropped", "dline kept"]);
  });

  it("keeps mine, takes theirs, or writes nothing", () => {
    const { onWrite, onTake, onClose } = open();
    press("Not now");
    expect([onWrite.mock.calls, onTake.mock.calls]).toEqual([[], []]);
    expect(onClose).toHaveBeenCalledOnce();
    press("Keep mine");
    expect(onWrite).toHaveBeenCalledWith(mine, "h2");
    press("Take theirs");
    expect(onTake).toHaveBeenCalledWith(disk, "h2");
  });

  it("of a deleted file writes it again as a new one", () => {
    const { onWrite } = open({ disk: { text: null, hash: null } });
    expect(screen.queryByRole("button", { name: "Take theirs" })).toBeNull();
    press("Write it again");
    expect(onWrite).toHaveBeenCalledWith(mine, null);
  });

  it("has no finding of axe", async () => {
    open();
    await waitFor(() => expect(document.body.textContent).toContain("only the writing does"));
    expect(await accessibility()).toEqual([]);
  });
});
