import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { filesQuery } from "@/api/queries";
import { Screen } from "@/app/Screen";
import { clock } from "@/lib/format";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { State } from "@/parts/State";
import { templatesQuery } from "../templates/queries";
import { recentRuns, recordings } from "./beginnings";
import "./builder.css";
import { nameOfFile } from "./files";

const SHOWN_MOST = 12;

/** What a new composition begins with. Nothing is written before it is saved. */
export function NewComposition() {
  const templates = useQuery(templatesQuery(undefined)).data?.templates ?? [];
  const runs = useQuery(recentRuns()).data?.runs ?? [];
  const recorded = recordings(useQuery(filesQuery).data);
  return (
    <Screen
      title="New composition"
      head={
        <nav className="crumb" aria-label="Where you are">
          <Link to="/compositions" search={{}}>Compositions</Link>
          <span aria-hidden="true">/</span>
          <h1>New composition</h1>
        </nav>
      }
    >
      <div className="b-new" tabIndex={0} role="region" aria-label="What it begins with">
        <section>
          <h2>Begin with</h2>
          <ul>
            <li><Link to="/edit" search={{ from: "scratch" }} className="b-card"><Icon name="i-comp" /><b>Nothing</b><span>An empty composition: add steps by dragging, with the keyboard, or as text.</span></Link></li>
            <li><Link to="/edit" search={{ from: "words" }} className="b-card"><Icon name="i-words" /><b>Words</b><span>Say what should happen. A model proposes the steps; you accept them or parts of them.</span></Link></li>
          </ul>
        </section>
        {runs.length > 0 && (
          <section>
            <h2>A run: its text, and the values that it had</h2>
            <ul>
              {runs.map((one) => (
                <li key={one.run_id}><Link to="/edit" search={{ from: `run:${one.run_id}` }} className="b-card"><Icon name="i-runs" /><b><SafeText text={one.name} most={60} /></b><span className="row"><State state={one.status} /> {clock(one.started_at)}</span></Link></li>
              ))}
            </ul>
          </section>
        )}
        {recorded.length > 0 && (
          <section>
            <h2>A recording</h2>
            <ul>
              {recorded.slice(0, SHOWN_MOST).map((one) => (
                <li key={one.path}><Link to="/edit" search={{ from: `recording:${one.path}` }} className="b-card"><Icon name="i-pin" /><b><SafeText text={nameOfFile(one.path)} most={60} /></b><span>{one.composition ? <>Outputs of <SafeText text={one.composition} most={60} />, kept in its tests</> : "Recorded calls and outputs"}</span></Link></li>
              ))}
            </ul>
          </section>
        )}
        {templates.length > 0 && (
          <section>
            <h2>A template</h2>
            <ul>
              {templates.slice(0, 30).map((one) => (
                <li key={one.id}><Link to="/edit" search={{ from: `template:${one.id}` }} className="b-card"><Icon name="i-tmpl" /><b><SafeText text={one.name} most={60} /></b><span><SafeText text={one.description} most={140} /></span></Link></li>
              ))}
            </ul>
          </section>
        )}
      </div>
    </Screen>
  );
}
