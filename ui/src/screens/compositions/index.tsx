import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useRef, useState } from "react";
import { compositionsQuery, filesQuery } from "@/api/queries";
import type { CompositionList, CompositionSummary } from "@/api/types";
import { Screen } from "@/app/Screen";
import { useShortcuts } from "@/app/shortcuts";
import { plural } from "@/lib/format";
import { Command, Empty } from "@/parts/Empty";
import { Failure } from "@/parts/Failure";
import { Finding } from "@/parts/Finding";
import { Icon } from "@/parts/Icon";
import { EffectMark } from "@/parts/Marks";
import { SafeText } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import "./compositions.css";

export default function Compositions() {
  const { q } = useSearch({ from: "/compositions" });
  const navigate = useNavigate();
  const query = useQuery(compositionsQuery);
  const all = query.data?.compositions ?? [];
  const broken = query.data?.broken ?? [];
  const shown = useMemo(() => filter(all, q), [all, q]);
  return (
    <Screen title="Compositions" about={query.isSuccess ? `${plural(all.length, "composition")}${broken.length > 0 ? `, ${plural(broken.length, "file")} cannot be served` : ""}` : undefined} actions={<Link to="/edit" search={{}} className="btn pri"><Icon name="i-plus" />New composition</Link>}>
      {query.isPending ? (
        <Skeleton label="Loading compositions" />
      ) : query.isError ? (
        <div className="pad"><Failure error={query.error} retry={() => void query.refetch()} /></div>
      ) : all.length + broken.length === 0 ? (
        <NoCompositions />
      ) : (
        <>
          <div className="bar">
            <label className="input compsearch">
              <Icon name="i-search" />
              <input data-search aria-label="Search compositions" placeholder="Search names and descriptions" value={q ?? ""} onChange={(event) => void navigate({ to: "/compositions", search: { q: event.target.value || undefined }, replace: true })} />
              <kbd aria-hidden="true">/</kbd>
            </label>
          </div>
          <div className="complist" tabIndex={0} role="region" aria-label="Compositions">
            {broken.length > 0 && <Broken files={broken} />}
            {shown.length > 0 ? <Rows compositions={shown} /> : <p className="pad muted">No composition fits “<SafeText text={q ?? ""} most={80} />”.</p>}
          </div>
        </>
      )}
    </Screen>
  );
}

export function filter(all: CompositionSummary[], q: string | undefined): CompositionSummary[] {
  const words = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((one) => words.every((word) => `${one.name} ${one.description}`.toLowerCase().includes(word)));
}

function Rows({ compositions }: { compositions: CompositionSummary[] }) {
  const [at, setAt] = useState(-1);
  const list = useRef<HTMLUListElement>(null);
  const go = (by: number) => {
    const next = Math.max(0, Math.min(compositions.length - 1, at + by));
    setAt(next);
    list.current?.querySelectorAll<HTMLElement>("a.comprow")[next]?.focus();
  };
  useShortcuts({ j: () => go(1), k: () => go(-1), ArrowDown: () => go(1), ArrowUp: () => go(-1) });
  return (
    <ul ref={list}>
      {compositions.map((one, i) => (
        <li key={one.name} className="compitem">
          <Link to="/compositions/$name" params={{ name: one.name }} className="comprow" onFocus={() => setAt(i)}>
            <Icon name="i-comp" />
            <b className="ell"><SafeText text={one.name} most={120} /></b>
            <span className="ell t2"><SafeText text={one.description.split("\n")[0] ?? ""} most={300} /></span>
            <EffectMark effect={one.effect} />
          </Link>
          <Link to="/edit" search={{ from: `composition:${one.name}` }} className="btn sm" aria-label={`Edit ${one.name}`}><Icon name="i-writes" small />Edit</Link>
          <Link to="/compositions/$name" params={{ name: one.name }} search={{ view: "run" }} className="btn sm" aria-label={`Run ${one.name}`}><Icon name="i-play" small />Run</Link>
        </li>
      ))}
    </ul>
  );
}

function Broken({ files }: { files: NonNullable<CompositionList["broken"]> }) {
  return (
    <section className="broken" aria-label="Files that cannot be served">
      {files.map((one) => (
        <details key={one.file} open={files.length < 4}>
          <summary><span className="st s-failed"><Icon name="s-failed" /><SafeText text={one.file} most={200} /></span> is not served: {plural(one.findings.length, "finding")}</summary>
          <div className="findings">{one.findings.map((finding, i) => <Finding key={i} finding={finding} />)}</div>
          <EditBroken file={one.file} />
        </details>
      ))}
    </section>
  );
}

/** Its path on the server ends in the path by which it can be edited. */
function EditBroken({ file }: { file: string }) {
  const { data } = useQuery(filesQuery);
  const path = data?.files.find((one) => file === one.path || file.endsWith(`/${one.path}`))?.path;
  return path ? <Link to="/edit" search={{ file: path }} className="btn sm"><Icon name="i-writes" small />Open in the builder</Link> : null;
}

function NoCompositions() {
  return (
    <Empty title="No composition is served">
      <p>A composition is a file that says which tools are called, and with what. This writes an example and its configuration:</p>
      <Command text="segue init" />
      <p>Segue serves the files that <code>compositions</code> in <code>segue.yaml</code> names, and sees changes at once.</p>
      <p><Link to="/edit" search={{}}>Make one here</Link>, <Link to="/plans">describe it in words</Link>, or <Link to="/templates" search={{}}>start from a template</Link>.</p>
    </Empty>
  );
}
