/** An icon of the sprite in index.html: `s-*` are states, `i-*` everything else. */
export function Icon({ name, small, label }: { name: string; small?: boolean; label?: string }) {
  return (
    <svg className={small ? "i xs" : "i"} role={label ? "img" : undefined} aria-label={label} aria-hidden={label ? undefined : true}>
      <use href={`#${name}`} />
    </svg>
  );
}
