// What the shortcut sheet shows. Keep it beside the code that handles the keys.
export const SHORTCUTS: { group: string; keys: [string, string][] }[] = [
  {
    group: "Everywhere",
    keys: [
      ["Ctrl K", "commands and search"],
      ["?", "this sheet"],
      ["/", "search field"],
      ["G R", "go to Runs"],
      ["G I", "go to Inbox"],
      ["G C", "go to Compositions"],
      ["G T", "go to Tools"],
      ["Esc", "close"],
    ],
  },
  {
    group: "Lists",
    keys: [
      ["J K", "move"],
      ["Enter", "open"],
      ["F", "failed only"],
      ["X", "mark to compare"],
    ],
  },
  {
    group: "A run",
    keys: [
      ["1 2 3", "graph, timeline, outline"],
      ["↑ ↓ ← →", "follow edges"],
      ["[ ]", "items of a loop"],
      ["+ - 0", "zoom in, out, fit"],
      ["Shift ← →", "move the zoomed timeline"],
      ["Shift R", "re-run from here"],
      ["C", "copy expression"],
    ],
  },
  {
    group: "Inbox",
    keys: [
      ["A", "focus Allow"],
      ["D", "focus Deny"],
      ["Enter", "answer"],
    ],
  },
  {
    group: "Compositions",
    keys: [
      ["R", "input, run, dry run, tests"],
      ["1 2 3", "graph, plan, run"],
      ["Ctrl Enter", "run"],
    ],
  },
  {
    group: "The builder",
    keys: [
      ["N", "add a step: search, Enter, place"],
      ["Ctrl S", "save"],
      ["Ctrl Z, Ctrl Shift Z", "undo, redo"],
      ["Ctrl .", "fix the finding here"],
      ["F8", "next finding"],
      ["F6", "next pane"],
      ["Enter", "fields of the step"],
      ["Shift F10", "everything for the step"],
      ["F2", "rename the step"],
      ["D", "duplicate"],
      ["M", "move"],
      ["E", "connect"],
      ["W", "wrap"],
      ["K", "change kind"],
      ["Shift X", "extract"],
      ["Delete", "remove"],
      ["O", "open or close a group"],
      ["T", "run to here"],
      ["Y", "run this step"],
      ["P", "pin its output"],
      ["1 2", "graph, outline"],
    ],
  },
  {
    group: "Tools",
    keys: [["Ctrl Enter", "call the tool"]],
  },
];
