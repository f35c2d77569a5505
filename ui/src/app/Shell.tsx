import { useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useState, type ReactNode } from "react";
import { handleKey, useShortcuts } from "./shortcuts";
import { Nav } from "./Nav";

const Palette = lazy(() => import("./Palette"));
const ShortcutSheet = lazy(() => import("./ShortcutSheet").then((module) => ({ default: module.ShortcutSheet })));

/** Navigation beside the screen, and what every screen shares: palette, sheet, keys. */
export function Shell({ children }: { children: ReactNode }) {
  const [over, setOver] = useState<"palette" | "sheet" | null>(null);
  const navigate = useNavigate();
  useEffect(() => {
    window.addEventListener("keydown", handleKey);
    return () => window.removeEventListener("keydown", handleKey);
  }, []);
  useShortcuts({
    "Ctrl+k": () => setOver((now) => (now === "palette" ? null : "palette")),
    "?": () => setOver("sheet"),
    "/": () => focusSearch(),
    "g r": () => void navigate({ to: "/" }),
    "g i": () => void navigate({ to: "/inbox" }),
    "g c": () => void navigate({ to: "/compositions" }),
    "g t": () => void navigate({ to: "/tools" }),
  });
  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={(event) => focusMain(event)}>
        Skip to the content
      </a>
      <Nav onSearch={() => setOver("palette")} />
      {children}
      <Suspense>
        {over === "palette" && <Palette onClose={() => setOver(null)} onSheet={() => setOver("sheet")} />}
        {over === "sheet" && <ShortcutSheet onClose={() => setOver(null)} />}
      </Suspense>
    </div>
  );
}

function focusMain(event: { preventDefault(): void }): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** A screen marks its search field with `data-search`. */
function focusSearch(): boolean {
  const field = document.querySelector<HTMLInputElement>("[data-search]");
  field?.focus();
  field?.select();
  return field !== null;
}
