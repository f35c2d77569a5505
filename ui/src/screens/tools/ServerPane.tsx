import { Link } from "@tanstack/react-router";
import { plural } from "@/lib/format";
import { Command } from "@/parts/Empty";
import { EffectMark } from "@/parts/Marks";
import { SafeText } from "@/parts/SafeText";
import { State } from "@/parts/State";
import type { Impact } from "@/api/types";
import { SERVER_STATE } from "./List";
import { nameOf, type ServerGroup } from "./rows";

/** One server: its state with the reason, how it is spoken to, and what it wrote to its log. */
export function ServerPane({ group: { name, server, tools } }: { group: ServerGroup }) {
  const known = server && SERVER_STATE[server.state];
  const facts: [string, string | null | undefined][] = [["Kind", server?.kind], ["Transport", server?.transport], ["Protocol", server?.protocol], ["Version", server?.version]];
  return (
    <section className="tpane scroll" tabIndex={0} aria-label={`Server ${name}`}>
      <div className="row">
        <h2><SafeText text={name || "compositions"} most={120} /></h2>
        {known && <State state={known.state}>{known.word}</State>}
      </div>
      {server?.reason && (
        <div className="err">
          <div className="eh"><SafeText text={server.reason} most={2000} /></div>
          <div className="eb">
            <p>Mend it in the configuration, and Segue starts it again. This checks every server and says what helps:</p>
            <Command text="segue doctor" />
          </div>
        </div>
      )}
      <dl className="tfacts">
        {facts.map(([label, value]) => value && (
          <div key={label}>
            <dt>{label}</dt>
            <dd><SafeText text={value} most={200} /></dd>
          </div>
        ))}
        <div><dt>Tools</dt><dd>{tools.length}</dd></div>
      </dl>
      {server && server.stderr.length > 0 && (
        <section>
          <h3>Last lines of its log</h3>
          <pre className="code whole" tabIndex={0} aria-label="Log"><SafeText text={server.stderr.join("\n")} most={50_000} /></pre>
        </section>
      )}
      {tools.length > 0 && (
        <section>
          <h3>{plural(tools.length, "tool")}</h3>
          <ul className="tnames">
            {tools.slice(0, 500).map((tool) => (
              <li key={tool.id}>
                <Link to="/tools" search={{ tool: tool.id }} className="mono"><SafeText text={nameOf(tool.id)} most={120} /></Link>
                <EffectMark effect={tool.effect as Impact} />
                <span className="ell muted"><SafeText text={tool.description.split("\n")[0] ?? ""} most={200} /></span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </section>
  );
}
