import { defaultRangeExtractor, useVirtualizer, type Range } from "@tanstack/react-virtual";
import { forwardRef, useEffect, useImperativeHandle, useRef, type HTMLAttributes, type ReactNode } from "react";

export interface VirtualListHandle {
  scrollTo(index: number): void;
  focus(): void;
}

interface Props extends Omit<HTMLAttributes<HTMLDivElement>, "children"> {
  count: number;
  rowHeight: number;
  row: (index: number) => ReactNode;
  /** Called when the last rows come into view. */
  onEnd?: () => void;
  /** Keys that survive insertions at the top. */
  keyOf?: (index: number) => string;
  head?: ReactNode;
  /** The active row is drawn wherever the list is scrolled to: `aria-activedescendant` names it. */
  active?: number;
}

/** A scroller that renders only the rows in view: 20,000 rows scroll like 20. */
export const VirtualList = forwardRef<VirtualListHandle, Props>(function VirtualList(
  { count, rowHeight, row, onEnd, keyOf, head, active = -1, className, ...rest },
  ref,
) {
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count,
    getScrollElement: () => box.current,
    estimateSize: () => rowHeight,
    overscan: 12,
    getItemKey: keyOf,
    rangeExtractor: (range: Range) => {
      const shown = defaultRangeExtractor(range);
      return active < 0 || active >= count || shown.includes(active) ? shown : [...shown, active].sort((a, b) => a - b);
    },
    // A list is drawn before the browser has measured it, also in tests.
    initialRect: { width: 800, height: 700 },
  });
  useImperativeHandle(ref, () => ({
    scrollTo: (index) => virtual.scrollToIndex(index, { align: "auto" }),
    focus: () => box.current?.focus(),
  }));
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (count > 0 && last >= count - 5) onEnd?.();
  }, [last, count, onEnd]);
  return (
    <div ref={box} className={`virtual ${className ?? ""}`} tabIndex={0} {...rest}>
      {head}
      <div className="virtual-in" style={{ height: virtual.getTotalSize() }} role="presentation">
        {items.map((item) => (
          <div key={item.key} className="virtual-row" role="presentation" style={{ transform: `translateY(${item.start}px)`, height: rowHeight }}>
            {row(item.index)}
          </div>
        ))}
      </div>
    </div>
  );
});
