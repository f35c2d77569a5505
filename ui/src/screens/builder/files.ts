// Files below the configured composition folders (`/api/v1/files`).
import { ApiError, api, unwrap } from "@/api/client";
import type { components } from "@/api/schema";

type Schemas = components["schemas"];
export type FileList = Schemas["FileList"];
export type FileText = Schemas["FileText"];
/** What is on disk instead of what the page had read. */
export interface Conflict {
  text: string | null;
  hash: string | null;
}

const FILE = "/api/v1/files/{path}";
const quoted = (hash: string): string => `"${hash}"`;

export const readFile = (path: string): Promise<FileText> => unwrap(api.GET(FILE, { params: { path: { path } } }));

/** Writes a file that has this hash, or with null a file that does not exist. */
export const writeFile = (path: string, text: string, hash: string | null) =>
  unwrap(api.PUT(FILE, { params: { path: { path }, header: hash === null ? { "If-None-Match": "*" } : { "If-Match": quoted(hash) } }, body: { text } }));

export const deleteFile = (path: string, hash: string) => unwrap(api.DELETE(FILE, { params: { path: { path }, header: { "If-Match": quoted(hash) } } }));

export const renameFile = (path: string, to: string, hash: string) =>
  unwrap(api.POST(`${FILE}/rename`, { params: { path: { path }, header: { "If-Match": quoted(hash) } }, body: { to } }));

/** The conflict that a refusal speaks of, or null. */
export function conflictOf(error: unknown): Conflict | null {
  if (!(error instanceof ApiError) || error.status !== 412) return null;
  const { text, hash } = error.problem as { text?: string | null; hash?: string | null };
  return { text: text ?? null, hash: hash ?? null };
}

export const nameOfFile = (path: string): string => path.slice(path.lastIndexOf("/") + 1);
export const formatOf = (path: string | null): "yaml" | "json" => (path?.endsWith(".json") ? "json" : "yaml");
/** `compositions/report.yaml` → `compositions/report.test.yaml`. */
export const testFileOf = (path: string): string => path.replace(/\.(ya?ml|json)$/, "") + ".test.yaml";

/** The folder that new compositions go to: that of the most compositions, else the first root. */
export function newFolder({ roots, files }: FileList): string {
  const counts = new Map<string, number>();
  for (const { path, kind } of files) {
    if (kind !== "composition") continue;
    const folder = path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
    counts.set(folder, (counts.get(folder) ?? 0) + 1);
  }
  const most = [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]))[0];
  return most ? most[0] : (roots.find((one) => !one.templates)?.folder ?? "");
}
