// What a new composition begins with.
import { api, unwrap } from "@/api/client";
import { compositionQuery, filesQuery, queryClient, runSourceQuery } from "@/api/queries";
import { planTextQuery } from "../plans/queries";
import { sourceOf, templateQuery } from "../templates/queries";

export const SCRATCH = `name: new-composition
description: ""
steps: []
`;

export interface Beginning {
  text: string;
  format: "yaml" | "json";
}

/** The text that `from` names: `template:ID`, `plan:ID`, `run:ID`, `composition:NAME`, or nothing at all. */
export async function beginning(from: string): Promise<Beginning> {
  const [kind, id] = [from.slice(0, from.indexOf(":")), from.slice(from.indexOf(":") + 1)];
  const yaml = (text: string): Beginning => ({ text, format: text.trimStart().startsWith("{") ? "json" : "yaml" });
  if (kind === "plan") return yaml(await queryClient.fetchQuery(planTextQuery(id)));
  if (kind === "run") return yaml((await queryClient.fetchQuery(runSourceQuery(id))).text);
  if (kind === "composition") return yaml((await queryClient.fetchQuery(compositionQuery(id))).text);
  if (kind === "template") {
    const source = sourceOf((await queryClient.fetchQuery(templateQuery(id))).composition);
    if (!source) throw new Error("this template shows no text");
    return source;
  }
  return yaml(SCRATCH);
}

/** The file of a served composition, if this page may see it. */
export async function fileOf(composition: string): Promise<string | null> {
  const list = await queryClient.fetchQuery(filesQuery).catch(() => null);
  return list?.files.find((one) => one.kind === "composition" && one.composition === composition)?.path ?? null;
}

/** Runs whose text can be a beginning. */
export const recentRuns = () => ({ queryKey: ["builder-runs"], queryFn: () => unwrap(api.GET("/api/v1/runs", { params: { query: { limit: 12 } } })) });
