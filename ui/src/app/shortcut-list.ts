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
    group: "Tools",
    keys: [["Ctrl Enter", "call the tool"]],
  },
];
