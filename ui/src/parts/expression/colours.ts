// Colours of the tokens inside expressions, under the names that the server has for them.
import { EditorView } from "@codemirror/view";

export const expressionColours = EditorView.theme({
  ".x-brace, .x-name, .x-function": { color: "var(--code-expr)" },
  ".x-member": { color: "var(--code-key)" },
  ".x-filter, .x-test": { color: "var(--text)", fontWeight: "600" },
  ".x-keyword, .x-number": { color: "var(--code-number)" },
  ".x-text": { color: "var(--code-string)" },
  ".x-operator": { color: "var(--text-2)" },
});
