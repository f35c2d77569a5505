import { useQuery } from "@tanstack/react-query";
import { Link, useLocation } from "@tanstack/react-router";
import { useEffect } from "react";
import { useStreamState, type StreamState } from "@/api/events";
import { questionsQuery, serversQuery } from "@/api/queries";
import { Icon } from "@/parts/Icon";
import { SafeText } from "@/parts/SafeText";
import { announce } from "./announce";
import { useSession } from "./session";
import { nextTheme, setTheme, useTheme } from "./theme";
import { setQuestionCount } from "./title";

const SCREENS = [
  { to: "/", icon: "i-runs", name: "Runs" },
  { to: "/inbox", icon: "i-inbox", name: "Inbox" },
  { to: "/compositions", icon: "i-comp", name: "Compositions" },
  { to: "/tools", icon: "i-tools", name: "Tools" },
  { to: "/templates", icon: "i-tmpl", name: "Templates" },
  { to: "/plans", icon: "i-words", name: "Plan from words" },
] as const;

export function Nav({ onSearch }: { onSearch: () => void }) {
  const questions = useQuery(questionsQuery).data?.questions.length ?? 0;
  const down = useQuery(serversQuery).data?.servers.filter((server) => server.state === "failed").length ?? 0;
  const theme = useTheme();
  const { pathname } = useLocation();
  useEffect(() => setQuestionCount(questions), [questions]);
  return (
    <nav className="nav" aria-label="Screens">
      <div className="brand">
        <svg className="i" aria-hidden="true"><use href="#i-logo" /></svg>
        <span>Segue</span>
      </div>
      <ul>
        {SCREENS.map(({ to, icon, name }) => (
          <li key={to}>
            <Link to={to} className={isUnder(pathname, to) ? "nav-it on" : "nav-it"} aria-current={isUnder(pathname, to) ? "page" : undefined} title={name}>
              <Icon name={icon} />
              <span>{name}</span>
              {name === "Inbox" && questions > 0 && <span className="badge">{questions}<span className="sr"> open</span></span>}
              {name === "Tools" && down > 0 && <span className="badge down">{down}<span className="sr"> failed</span></span>}
            </Link>
          </li>
        ))}
      </ul>
      <div className="sp" />
      <ul>
        <li>
          <button type="button" className="nav-it" onClick={onSearch} title="Search and commands">
            <Icon name="i-search" />
            <span>Search</span>
            <kbd aria-hidden="true">Ctrl K</kbd>
          </button>
        </li>
        <li>
          <Link to="/settings" className="nav-it" activeProps={{ className: "on" }} title="Settings and doctor">
            <Icon name="i-gear" />
            <span>Settings and doctor</span>
          </Link>
        </li>
        <li>
          <button type="button" className="nav-it" title={`Theme: ${theme}`}
            onClick={() => {
              setTheme(nextTheme(theme));
              announce(`Theme: ${nextTheme(theme)}`);
            }}
          >
            <Icon name="i-theme" />
            <span>Theme: {theme}</span>
          </button>
        </li>
      </ul>
      <Foot />
    </nav>
  );
}

/** Runs is at `/`, and so is everything about one or two runs. */
function isUnder(pathname: string, to: string): boolean {
  if (to === "/") return pathname === "/" || pathname.startsWith("/runs/") || pathname === "/compare";
  if (to === "/compositions" && pathname === "/edit") return true;
  return pathname === to || pathname.startsWith(`${to}/`);
}

const STREAM: Record<StreamState, string> = { live: "Live", connecting: "Connecting", lost: "Connection lost, trying again" };

function Foot() {
  const session = useSession();
  const state = useStreamState();
  return (
    <div className="navfoot">
      <span className="row" title={STREAM[state]}>
        <span className={`live ${state}`} aria-hidden="true" />
        <span className="w">{STREAM[state]}</span>
      </span>
      <span className="w ell">
        <SafeText text={session.principal} />, {session.rights.includes("write") || session.rights.includes("admin") ? "may write" : session.rights.includes("run") ? "may run" : "may read"}
      </span>
    </div>
  );
}
