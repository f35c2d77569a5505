import { useNavigate } from "@tanstack/react-router";
import { useCommands, type PaletteCommand } from "@/app/commands";
import { lastId, outermost, planPath } from "@/lib/path";
import { expression } from "@/lib/expression";
import { copy } from "@/parts/Copy";
import type { MenuItem } from "@/parts/Menu";
import { stateWord } from "@/parts/State";
import { useRunContext, type RunContext } from "./context";
import { hasCut } from "@/lib/json-rows";
import { asCommand, asCurl, asMcpCall } from "./copy-as";
import { stateOf } from "./model";
import { loadWhole } from "./whole-value";

/** The run's input, whole. */
export async function wholeInput(run: RunContext["model"]["run"]): Promise<unknown> {
  return hasCut(run.input) ? loadWhole(run.run_id, undefined, "input") : run.input;
}

function copies({ model: { run }, selected }: RunContext): { label: string; text: () => Promise<string> }[] {
  const from = selected ? outermost(selected) : null;
  const items = [
    { label: "Command line", text: async () => asCommand(run, await wholeInput(run), null) },
    { label: "curl", text: async () => asCurl(run, await wholeInput(run), null, location.origin) },
    { label: "MCP call", text: async () => asMcpCall(run, await wholeInput(run)) },
    { label: "Link to this", text: () => Promise.resolve(location.href) },
  ];
  if (!from) return items;
  return [
    ...items,
    { label: `Command line from ${from}`, text: () => Promise.resolve(asCommand(run, null, from)) },
    { label: `curl from ${from}`, text: () => Promise.resolve(asCurl(run, null, from, location.origin)) },
  ];
}

export function useCopyItems(): MenuItem[] {
  return copies(useRunContext()).map(({ label, text }) => ({ label, icon: "i-copy", onSelect: () => void text().then((it) => copy(it, `Copied: ${label}`)) }));
}

/** "This run" in the palette: actions, and every step by name. */
export function useRunCommands(context: RunContext): void {
  const { model, actions, selected, select, openRerun } = context;
  const navigate = useNavigate();
  const group = "This run";
  const own: PaletteCommand[] = [
    { id: "rerun", group, label: selected ? `Re-run from ${outermost(selected)}…` : "Re-run…", icon: "i-again", hint: "edit input first", keys: "Shift R", off: actions.rerun.off, run: () => openRerun(selected) },
    { id: "cancel", group, label: "Cancel the run", icon: "i-stop", off: actions.cancel.off, run: actions.cancel.run },
    ...(actions.resume.offered ? [{ id: "resume", group, label: "Resume the run", icon: "i-play", off: actions.resume.off, run: actions.resume.run }] : []),
    { id: "rollback", group, label: "Roll back what it did", icon: "i-rb", off: actions.rollback.off, run: actions.rollback.run },
    ...(selected ? [{ id: "copy-expr", group, label: `Copy ${expression(lastId(planPath(selected)), [])}`, icon: "i-copy", keys: "C", run: () => void copy(expression(lastId(planPath(selected)), [])) }] : []),
    ...copies(context).map(({ label, text }) => ({ id: `copy ${label}`, group, label: `Copy as ${label}`, icon: "i-copy", run: () => void text().then((it) => copy(it)) })),
    { id: "same", group, label: `All runs of ${model.run.name}`, icon: "i-runs", run: () => void navigate({ to: "/", search: { name: model.run.name } }) },
  ];
  const steps: PaletteCommand[] = model.plan.steps.slice(0, 2000).map((step) => ({ id: `step ${step.id}`, group: "Steps", label: `Go to step ${step.id}`, icon: "i-right", hint: stateWord(stateOf(model, step.id)), run: () => select(step.id) }));
  useCommands([...own, ...steps]);
}
