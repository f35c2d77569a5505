import { useEffect, useRef, useState } from "react";
import type { ExpressionService, ExpressionValue } from "./types";

export const PAUSE_MS = 60;
/** A longer draft is not sent at each pause. */
export const DRAFT_MOST = 20_000;

export interface Preview {
  /** Of the last draft that was answered: it stays while a newer one is asked. */
  result: ExpressionValue | null;
  /** The server could not be asked. */
  failed: string | null;
  stale: boolean;
  tookMs: number | null;
}

/** What a draft gives. Answers to older drafts are dropped. `version` asks again when something else changed. */
export function usePreview(draft: string, preview: ExpressionService["preview"], version: unknown): Preview {
  const [shown, setShown] = useState<Preview>({ result: null, failed: null, stale: false, tookMs: null });
  const ask = useRef(preview);
  ask.current = preview;
  useEffect(() => {
    if (draft.trim() === "" || draft.length > DRAFT_MOST) {
      setShown({ result: null, failed: null, stale: false, tookMs: null });
      return;
    }
    const asking = new AbortController();
    const from = performance.now();
    setShown((now) => (now.stale ? now : { ...now, stale: true }));
    const timer = setTimeout(() => {
      ask.current(draft, asking.signal).then(
        (result) => asking.signal.aborted || setShown({ result, failed: null, stale: false, tookMs: performance.now() - from }),
        (error: unknown) => asking.signal.aborted || setShown({ result: null, failed: error instanceof Error ? error.message : String(error), stale: false, tookMs: null }),
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [draft, version]);
  return shown;
}
