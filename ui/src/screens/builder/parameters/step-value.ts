// A step as it is written, as a JSON value: what the form of its fields shows. Reads YAML (and JSON, which is YAML) with
// the editor's own parser, so it also works on a text that has a mistake elsewhere. Changes go to the server, by pointer:
// a value that this file reads differently is shown differently and never written.
import { yamlLanguage } from "@codemirror/lang-yaml";
import { blockText, plainScalar, quotedText } from "./yaml-scalars";

type SyntaxNode = ReturnType<typeof yamlLanguage.parser.parse>["topNode"];

const NODES_MOST = 20_000;
const DEPTH_MOST = 60;

interface Reading {
  text: string;
  anchors: ReadonlyMap<string, SyntaxNode>;
  nodes: number;
  depth: number;
}

/** The step with this id, or null. A list that holds it is named by `steps`, `parallel` or `otherwise`. */
export function stepValue(text: string, id: string): Record<string, unknown> | null {
  const tree = yamlLanguage.parser.parse(text);
  const anchors = new Map<string, SyntaxNode>();
  let found: SyntaxNode | null = null;
  tree.iterate({
    enter: (ref) => {
      if (ref.name === "Anchor" && ref.node.parent) anchors.set(text.slice(ref.from + 1, ref.to), ref.node.parent);
      if (found || (ref.name !== "BlockMapping" && ref.name !== "FlowMapping")) return;
      if (isStep(text, ref.node) && member(text, ref.node, "id") === id) found = ref.node;
    },
  });
  if (!found) return null;
  const value = read({ text, anchors, nodes: 0, depth: 0 }, found);
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
}

/** The document as a JSON value; null where it is no mapping. */
export function documentValue(text: string): Record<string, unknown> | null {
  const tree = yamlLanguage.parser.parse(text);
  const anchors = new Map<string, SyntaxNode>();
  tree.iterate({ enter: (ref) => void (ref.name === "Anchor" && ref.node.parent && anchors.set(text.slice(ref.from + 1, ref.to), ref.node.parent)) });
  const top = tree.topNode.getChild("Document");
  const value = read({ text, anchors, nodes: 0, depth: 0 }, top ? (contents(top)[0] ?? null) : null);
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
}

const LISTS = new Set(["steps", "parallel", "otherwise"]);

function isStep(text: string, mapping: SyntaxNode): boolean {
  let item = mapping.parent;
  while (item?.name === "Anchored" || item?.name === "Tagged") item = item.parent;
  const pair = item?.parent?.parent;
  const key = pair?.name === "Pair" ? pair.getChild("Key") : null;
  return item?.name === "Item" && key !== null && key !== undefined && LISTS.has(text.slice(key.from, key.to).replace(/^(["'])(.*)\1$/, "$2"));
}

function member(text: string, mapping: SyntaxNode, name: string): unknown {
  for (const pair of mapping.getChildren("Pair")) {
    const [key, value] = halves(pair);
    if (key && value && text.slice(key.from, key.to).replace(/^(["'])(.*)\1$/, "$2") === name) return read({ text, anchors: new Map(), nodes: 0, depth: 0 }, value);
  }
  return undefined;
}

const CONTENT = new Set(["BlockMapping", "BlockSequence", "FlowMapping", "FlowSequence", "Literal", "QuotedLiteral", "BlockLiteral", "Alias", "Anchored", "Tagged"]);

function contents(node: SyntaxNode): SyntaxNode[] {
  const out: SyntaxNode[] = [];
  for (let child = node.firstChild; child; child = child.nextSibling) if (CONTENT.has(child.name)) out.push(child);
  return out;
}

function halves(pair: SyntaxNode): [SyntaxNode | null, SyntaxNode | null] {
  const key = pair.getChild("Key");
  return [key ? (contents(key)[0] ?? null) : null, contents(pair)[0] ?? null];
}

function read(r: Reading, node: SyntaxNode | null): unknown {
  if (!node || ++r.nodes > NODES_MOST || r.depth > DEPTH_MOST) return null;
  r.depth++;
  const value = content(r, node);
  r.depth--;
  return value;
}

function content(r: Reading, node: SyntaxNode): unknown {
  const text = () => r.text.slice(node.from, node.to);
  switch (node.name) {
    case "Literal":
      return plainScalar(text());
    case "QuotedLiteral":
      return quotedText(text());
    case "BlockLiteral":
      return blockText(text(), r.text, node.from);
    case "Alias":
      return read(r, r.anchors.get(text().slice(1)) ?? null);
    case "Anchored":
      return read(r, contents(node)[0] ?? null);
    case "Tagged": {
      const inner = contents(node)[0] ?? null;
      const tag = node.getChild("Tag");
      const isText = tag !== null && r.text.slice(tag.from, tag.to) === "!!str";
      return isText && inner?.name === "Literal" ? r.text.slice(inner.from, inner.to) : read(r, inner);
    }
    case "BlockSequence":
    case "FlowSequence":
      return node.getChildren("Item").map((item) => read(r, contents(item)[0] ?? null));
    case "BlockMapping":
    case "FlowMapping":
      return mapping(r, node);
    default:
      return null;
  }
}

function mapping(r: Reading, node: SyntaxNode): Record<string, unknown> {
  const entries: [string, unknown][] = [];
  for (const pair of node.getChildren("Pair")) {
    const [key, value] = halves(pair);
    if (!key) continue;
    const name = String(read(r, key));
    const inner = read(r, value);
    // A merge key gives what the mapping itself does not have.
    if (name === "<<" && typeof inner === "object" && inner !== null && !Array.isArray(inner)) entries.unshift(...Object.entries(inner));
    else entries.push([name, inner]);
  }
  return Object.fromEntries(entries);
}
