import { useEffect, useRef, useState } from "react";
import { announce } from "@/app/announce";
import { useShortcuts } from "@/app/shortcuts";
import { moved, tickText, zoomed, type Span } from "./scale";

/** Which part of the run the timeline shows: buttons, `+`, `-`, `0`, `Shift` with arrows, or the wheel with `Ctrl`. */
export function useZoom(whole: number) {
  const [chosen, setChosen] = useState<Span | null>(null);
  // A live run grows and the chosen part stays. It no longer fits when the run ends before the time that was drawn.
  const kept = chosen && chosen.to <= whole ? chosen : null;
  const span = kept ?? { from: 0, to: whole };
  const show = (next: Span | null) => {
    setChosen(next);
    announce(next ? `${tickText(Math.round(next.from), whole)} to ${tickText(Math.round(next.to), whole)}` : "The whole run");
  };
  const zoom = (inwards: boolean, part = 0.5) => show(zoomed(span, whole, inwards, part));
  const fit = () => show(null);
  const move = (onwards: boolean) => show(kept && moved(kept, whole, onwards));
  useShortcuts({
    "+": () => zoom(true),
    "=": () => zoom(true),
    "-": () => zoom(false),
    "0": fit,
    "Shift+ArrowRight": () => move(true),
    "Shift+ArrowLeft": () => move(false),
  });
  const latest = useRef(zoom);
  latest.current = zoom;
  const area = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const node = area.current;
    // React listens passively; the browser would zoom the page.
    const onWheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const lines = node?.querySelector(".tl-lines")?.getBoundingClientRect();
      latest.current(event.deltaY < 0, lines ? Math.max(0, Math.min(1, (event.clientX - lines.left) / lines.width)) : 0.5);
    };
    node?.addEventListener("wheel", onWheel, { passive: false });
    return () => node?.removeEventListener("wheel", onWheel);
  }, []);
  return { span, area, zoom, fit };
}
