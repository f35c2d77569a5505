import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import { Failure } from "@/parts/Failure";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { Skeleton } from "@/parts/Skeleton";

const settingsQuery = { queryKey: ["settings"], queryFn: () => unwrap(api.GET("/api/v1/settings")), refetchOnMount: "always" as const };

const WHICH: { value: "set" | "all"; label: string }[] = [
  { value: "set", label: "Set" },
  { value: "all", label: "All" },
];

function About({ data }: { data: { file: string | null; trusted: boolean } | undefined }) {
  if (!data?.file) return <>No file: <code>segue init</code> writes one.</>;
  return <><SafeText text={data.file} most={200} />{data.trusted ? "" : ", not trusted: its commands and servers do not start"}. Secrets are masked.</>;
}

/** The configuration in effect, without secrets, and where each value comes from. */
export function Configuration() {
  const settings = useQuery(settingsQuery);
  const [filter, setFilter] = useState("");
  const [which, setWhich] = useState<"set" | "all">("set");
  const all = settings.data?.settings ?? [];
  const shown = all.filter((one) => (which === "all" || one.from !== "default") && `${one.name} ${one.from}`.toLowerCase().includes(filter.toLowerCase()));
  return (
    <section className="card" aria-labelledby="settings-h">
      <div className="row">
        <h2 id="settings-h">Configuration</h2>
        <span className="muted ell"><About data={settings.data} /></span>
        <span className="grow" />
        <Segmented label="Which settings" value={which} options={WHICH} onChange={setWhich} />
        <div className="input">
          <Icon name="i-search" />
          <input data-search value={filter} aria-label="Filter settings" placeholder="Filter" onChange={(event) => setFilter(event.target.value)} />
        </div>
      </div>
      {settings.isPending && <Skeleton rows={6} label="Loading the configuration" />}
      {settings.isError && <Failure error={settings.error} retry={() => void settings.refetch()} />}
      {settings.data && shown.length === 0 && <p className="muted">{which === "set" && !filter ? "Every setting has its default." : "No setting fits."}</p>}
      {shown.length > 0 && (
        <table className="plantable" aria-label="Configuration">
          <thead>
            <tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th></tr>
          </thead>
          <tbody>
            {shown.map((one) => (
              <tr key={one.name}>
                <th scope="row" className="mono"><SafeText text={one.name} most={120} /></th>
                <td className="mono anywhere"><SafeText text={typeof one.value === "string" ? one.value : JSON.stringify(one.value)} most={400} /></td>
                <td className="muted"><SafeText text={one.from} most={200} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
