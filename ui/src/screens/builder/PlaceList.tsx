import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { announce } from "@/app/announce";
import { plainText } from "@/lib/safe-text";
import { SafeText } from "@/parts/SafeText";
import { useBuilder, useChecked, useShown } from "./builder";
import { defaultPlace, places } from "./places";
import { focusPane, useUi, type Placing } from "./ui";

/** Where a step goes: arrow keys move through all places in the order of the text, the graph shows the place, Enter takes it. */
export function PlaceList({ placing }: { placing: Placing }) {
  const builder = useBuilder();
  const { setPlacing, setTarget } = useUi();
  const steps = useChecked((checked) => checked.analysis?.steps);
  const selected = useShown((shown) => shown.selected);
  const all = useMemo(() => places(steps ?? [], placing.moves), [steps, placing]);
  const [at, setAt] = useState(() => defaultPlace(all, placing.moves ? null : selected));
  const box = useRef<HTMLDivElement>(null);
  const place = all[Math.min(at, all.length - 1)];
  useEffect(() => box.current?.focus(), []);
  useEffect(() => {
    setTarget(place ?? null);
    if (place) announce(place.words);
  }, [place, setTarget]);
  useEffect(() => () => setTarget(null), [setTarget]);
  const close = () => {
    setPlacing(null);
    focusPane("graph");
  };
  const take = () => {
    if (!place) return;
    void builder.edit(placing.edit(place.place), `${placing.moves ? "Moved" : "Added"} ${placing.what} ${place.words}`);
    close();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -all.length, End: all.length }[event.key];
    if (step !== undefined) setAt((now) => Math.max(0, Math.min(all.length - 1, now + step)));
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") setAt((now) => level(all, now, event.key === "ArrowRight" ? 1 : -1));
    else if (event.key === "Enter") take();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const shown = all.slice(Math.max(0, at - 3), Math.max(0, at - 3) + 7);
  return (
    <div className="b-places box">
      <b className="ell">{placing.moves ? "Move" : "Add"} <SafeText text={placing.what} most={60} /></b>
      <span className="muted"><kbd>↑</kbd> <kbd>↓</kbd> choose the place, <kbd>←</kbd> <kbd>→</kbd> go out and in</span>
      <div ref={box} role="listbox" tabIndex={0} aria-label={`Place of ${plainText(placing.what)}`} aria-activedescendant={place ? `b-place-${all.indexOf(place)}` : undefined} onKeyDown={onKeyDown}>
        {shown.map((one) => {
          const i = all.indexOf(one);
          return (
            <div key={i} id={`b-place-${i}`} role="option" aria-selected={one === place} className={one === place ? "b-place on" : "b-place"} style={{ paddingInlineStart: 8 + one.depth * 14 }} onClick={() => setAt(i)}>
              <SafeText text={one.words} most={120} />
            </div>
          );
        })}
      </div>
      <div className="row">
        <button type="button" className="btn pri sm" onClick={take}>{placing.moves ? "Move here" : "Add here"} <kbd aria-hidden="true">Enter</kbd></button>
        <button type="button" className="btn sm" onClick={close}>Cancel <kbd aria-hidden="true">Esc</kbd></button>
      </div>
    </div>
  );
}

/** The next place that is one level deeper, or the next that is one level up. */
function level(all: readonly { depth: number }[], at: number, by: 1 | -1): number {
  const depth = all[at]?.depth ?? 0;
  const next = all.findIndex((one, i) => i > at && one.depth === depth + by);
  return next >= 0 ? next : at;
}
