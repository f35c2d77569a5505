// Inputs and outputs of steps, among them large and hostile ones, and the preview rule of the server.
const LONG = "## Added\n- Timeline view of runs\n- Cancel from the page\n".repeat(80);

export function outputOf(record) {
  const { path, plan } = record;
  if (record.items !== undefined) return Array.from({ length: Math.min(record.items, 300) }, (_, i) => ({ number: 2100 + i, title: `Item ${i}` }));
  if (plan.id === "release") return { id: 291180447, tag_name: "v2.4.0", html_url: "https://github.com/acme/site/releases/tag/v2.4.0", draft: false, author: { login: "release-bot", id: 51, site_admin: false }, assets: [], body: LONG, "with space": 1, empty: {} };
  if (plan.id === "words") return { text: "\u202Egnp.exe\u0000 <script>alert(1)</script> مرحبا", count: 3 };
  if (plan.id === "pulls") return { total: 23, items: Array.from({ length: 23 }, (_, i) => ({ number: 2100 + i, title: `Pull request ${i}`, labels: ["feature", "docs"], merged: true })) };
  if (plan.id === "list") return { tables: Array.from({ length: 300 }, (_, i) => `table_${i}`) };
  if (plan.id === "s0") return { text: "x".repeat(3_000_000), rows: Array.from({ length: 20_000 }, (_, i) => ({ id: i, value: `row ${i}` })) };
  return { ok: true, path, value: path.length * 7 };
}

export function inputOf(record) {
  const { plan, path } = record;
  if (!plan.tool) return null;
  if (plan.id === "release") return { owner: "acme", repo: "site", tag_name: "v2.4.0", name: "Release v2.4.0", body: LONG };
  return { repo: "acme/site", limit: 50, of: path };
}

export function templateOf(record) {
  if (!record.plan.tool) return null;
  if (record.plan.id === "release") return { owner: "acme", repo: "{{ input.repo }}", tag_name: "{{ tag.name }}", name: "Release {{ tag.name }}", body: "{{ notes.text }}" };
  return { repo: "{{ input.repo }}", limit: 50, of: "{{ loop.index }}" };
}

const size = (value) => Buffer.byteLength(JSON.stringify(value) ?? "null");
const cutOf = (kind, value, length, preview) => ({ $cut: { kind, bytes: size(value), length, preview } });

export function preview(value) {
  if (typeof value === "string") return value.length > 200 ? cutOf("string", value, value.length, value.slice(0, 200)) : value;
  if (Array.isArray(value)) {
    const kept = value.slice(0, 100).map(preview);
    return value.length > 100 ? cutOf("array", value, value.length, kept) : kept;
  }
  if (value && typeof value === "object") {
    const entries = Object.entries(value);
    const kept = Object.fromEntries(entries.slice(0, 100).map(([k, v]) => [k, preview(v)]));
    return entries.length > 100 ? cutOf("object", value, entries.length, kept) : kept;
  }
  return value;
}

export function at(value, pointer) {
  let now = value;
  for (const part of pointer.split("/").slice(1)) now = now?.[part.replaceAll("~1", "/").replaceAll("~0", "~")];
  return now;
}
