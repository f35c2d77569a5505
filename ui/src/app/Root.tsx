import { Outlet, useLocation } from "@tanstack/react-router";
import { useAnnouncement } from "./announce";
import { SessionGate } from "./SessionGate";
import { Shell } from "./Shell";

export function Root() {
  const { pathname } = useLocation();
  return (
    <>
      {pathname === "/sign-in" ? (
        <Outlet />
      ) : (
        <SessionGate>
          <Shell>
            <Outlet />
          </Shell>
        </SessionGate>
      )}
      <LiveRegion />
    </>
  );
}

function LiveRegion() {
  const text = useAnnouncement();
  return (
    <div className="sr" role="status" aria-live="polite">
      {text}
    </div>
  );
}
