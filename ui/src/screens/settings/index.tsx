import { useMutation } from "@tanstack/react-query";
import { api, setCsrf, unwrap } from "@/api/client";
import { queryClient } from "@/api/queries";
import { Screen } from "@/app/Screen";
import { useDenied, useSession } from "@/app/session";
import { setTheme, useTheme, type Theme } from "@/app/theme";
import { clock, relative } from "@/lib/format";
import { Button } from "@/parts/Button";
import { Failure } from "@/parts/Failure";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { Checks } from "./Checks";
import { Configuration } from "./Configuration";
import "@/parts/plan-panes.css";
import "./settings.css";

export default function Settings() {
  const denied = useDenied("admin");
  return (
    <Screen title="Settings and doctor">
      <div className="settings" tabIndex={0} role="region" aria-label="Settings and doctor">
        <SessionCard />
        <Appearance />
        {denied ? (
          <section className="card">
            <h2>Doctor and configuration</h2>
            <p className="muted">The checks and the configuration are shown to a principal with the right “admin”. A terminal on the server shows them, too: <code>segue doctor</code>.</p>
          </section>
        ) : (
          <>
            <Checks />
            <Configuration />
          </>
        )}
      </div>
    </Screen>
  );
}

const RIGHTS: Record<string, string> = {
  read: "see runs, compositions and tools",
  run: "start runs",
  approve: "answer questions",
  compose: "run compositions and tools that are not served",
  write: "change templates and plans",
  metrics: "read the figures for monitoring",
  admin: "everything",
};

function SessionCard() {
  const session = useSession();
  const out = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/session")),
    onSuccess: () => {
      setCsrf(null);
      queryClient.clear();
      location.assign("/");
    },
  });
  return (
    <section className="card" aria-labelledby="session-h">
      <div className="row">
        <h2 id="session-h">Session</h2>
        <span className="grow" />
        <Button icon="i-out" busy={out.isPending} off={session.csrf ? null : "the request came without a session cookie"} onClick={() => out.mutate()}>Sign out</Button>
      </div>
      {out.isError && <Failure error={out.error} />}
      <dl className="pairs">
        <dt>Principal</dt>
        <dd><SafeText text={session.principal} most={200} /></dd>
        <dt>Rights</dt>
        <dd>
          <ul>
            {session.rights.map((right) => (
              <li key={right}><b><SafeText text={right} /></b>{RIGHTS[right] && <span className="muted">: {RIGHTS[right]}</span>}</li>
            ))}
          </ul>
        </dd>
        {session.toolset && <><dt>Toolset</dt><dd><SafeText text={session.toolset} /></dd></>}
        {session.expires_at && <><dt>Ends</dt><dd title={session.expires_at}>{clock(session.expires_at)}, {relative(session.expires_at)}</dd></>}
        <dt>Server</dt>
        <dd>Segue <SafeText text={session.version} most={60} />{!session.writable && ", which accepts no changes"}</dd>
      </dl>
    </section>
  );
}

const THEMES: { value: Theme; label: string }[] = [
  { value: "system", label: "As the system" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
];

function Appearance() {
  const theme = useTheme();
  return (
    <section className="card" aria-labelledby="look-h">
      <div className="row">
        <h2 id="look-h">Appearance</h2>
        <span className="grow" />
        <Segmented label="Theme" value={theme} options={THEMES} onChange={setTheme} />
      </div>
    </section>
  );
}
