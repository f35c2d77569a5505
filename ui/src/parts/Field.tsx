import { useId, type ReactNode } from "react";

interface Props {
  label: string;
  type?: string;
  help?: ReactNode;
  error?: string | null;
  required?: boolean;
  /** Such as the Value, Expr, Raw switch. */
  extra?: ReactNode;
  /** The line below: the value and its type, or why it fails. */
  preview?: ReactNode;
  children: (ids: { id: string; describedBy: string | undefined }) => ReactNode;
}

/** A label, its control, help, and what is wrong, tied together for screen readers. */
export function Field({ label, type, help, error, required, extra, preview, children }: Props) {
  const id = useId();
  const about = `${id}-about`;
  return (
    <div className="field">
      <div className="lb">
        <label htmlFor={id}>{label}</label>
        {required && <span className="req" title="required">*</span>}
        {type && <span className="ty">{type}</span>}
        {extra && <span className="r">{extra}</span>}
      </div>
      {children({ id, describedBy: help || error ? about : undefined })}
      {(help || error) && (
        <div id={about} className={error ? "help bad" : "help"}>
          {error ?? help}
        </div>
      )}
      {preview && <div className="prev">{preview}</div>}
    </div>
  );
}
