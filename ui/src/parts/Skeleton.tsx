/** Grey rows while a list loads. They say so once to a screen reader. */
export function Skeleton({ rows = 12, label = "Loading" }: { rows?: number; label?: string }) {
  return (
    <div className="skel" role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} className={`skel-row w${i % 4}`} />
      ))}
    </div>
  );
}
