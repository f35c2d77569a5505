import { useEffect, type ReactNode } from "react";
import { setTitle } from "./title";

interface Props {
  /** The title of the tab, and of the head unless `head` is given. */
  title: string;
  /** Beside the title: counts and the like. */
  about?: ReactNode;
  /** At the right of the head. */
  actions?: ReactNode;
  /** Replaces title and `about`, such as a breadcrumb with the h1. */
  head?: ReactNode;
  children: ReactNode;
}

/** Every screen: a bar of 44 px with its one h1, then its content. */
export function Screen({ title, about, actions, head, children }: Props) {
  useEffect(() => setTitle(title), [title]);
  return (
    <main id="main" tabIndex={-1}>
      <header className="bar">
        {head ?? (
          <>
            <h1>{title}</h1>
            {about && <span className="muted ell">{about}</span>}
          </>
        )}
        <span className="grow" />
        {actions}
      </header>
      {children}
    </main>
  );
}
