import { useEffect, useRef, type ReactNode } from "react";
import { IconButton } from "./Button";

interface Props {
  title: string;
  open: boolean;
  onClose: () => void;
  children: ReactNode;
  footer?: ReactNode;
  /** `bare` draws no head, as the palette does. */
  bare?: boolean;
  wide?: boolean;
}

/** The browser's own modal dialog: it traps focus, gives it back, closes on Esc, and needs no inline style. */
export function Dialog({ title, open, onClose, children, footer, bare, wide }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    if (!open || !dialog) return;
    if (!dialog.open) dialog.showModal();
    // The browser focuses the first thing that can be; a field marked so comes before it.
    dialog.querySelector<HTMLElement>("[data-autofocus]")?.focus();
    return () => dialog.close();
  }, [open]);
  if (!open) return null;
  return (
    <dialog
      ref={ref}
      className={`dialog${bare ? " bare" : ""}${wide ? " wide" : ""}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === ref.current && onClose()}
    >
      <div className="dialog-in">
        {!bare && (
          <header className="dialog-h">
            <h2>{title}</h2>
            <IconButton icon="i-x" label="Close" kind="ghost" onClick={onClose} />
          </header>
        )}
        {bare ? children : <div className="dialog-b">{children}</div>}
        {footer && <footer className="dialog-f">{footer}</footer>}
      </div>
    </dialog>
  );
}
