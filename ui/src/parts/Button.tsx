import type { ButtonHTMLAttributes, ReactNode } from "react";
import { Icon } from "./Icon";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  icon?: string;
  kind?: "primary" | "danger" | "ghost";
  size?: "small" | "large";
  busy?: boolean;
  /** Why it cannot be used now: shown as its title; the button stays focusable. */
  off?: string | false | null;
  keys?: string;
  children?: ReactNode;
}

const KINDS = { primary: "pri", danger: "bad", ghost: "ghost" };
const SIZES = { small: "sm", large: "lg" };

export function Button({ icon, kind, size, busy, off, keys, children, className, onClick, title, ...rest }: Props) {
  const classes = ["btn", kind && KINDS[kind], size && SIZES[size], !children && "ic", off && "off", className];
  return (
    <button
      type="button"
      {...rest}
      className={classes.filter(Boolean).join(" ")}
      aria-disabled={off || busy ? true : undefined}
      aria-busy={busy || undefined}
      title={off || title}
      onClick={(event) => {
        if (off || busy) event.preventDefault();
        else onClick?.(event);
      }}
    >
      {busy ? <Icon name="s-running" /> : icon && <Icon name={icon} />}
      {children}
      {keys && <kbd aria-hidden="true">{keys}</kbd>}
    </button>
  );
}

/** A button that is only an icon: it needs a name. */
export function IconButton({ label, title, ...rest }: Omit<Props, "children"> & { icon: string; label: string }) {
  return <Button {...rest} aria-label={label} title={title ?? label} />;
}
