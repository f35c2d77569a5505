// Saving: a file is written only if it is on disk as it was read.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { filesQuery, queryClient } from "@/api/queries";
import { announce } from "@/app/announce";
import { useDenied } from "@/app/session";
import { useBuilder } from "./builder";
import { conflictOf, writeFile } from "./files";
import type { Ui } from "./ui";

/** Why this page cannot write files, or null. */
export function useNoWrite(): string | null {
  const denied = useDenied("write");
  const files = useQuery(filesQuery);
  if (denied) return denied;
  if (files.isError) return "this server has no files to write";
  if (files.data && !files.data.writable) return "writing is off on this server: `server.edit` turns it on";
  return null;
}

export interface Save {
  /** Why it cannot be saved now, or null. */
  off: string | null;
  busy: boolean;
  error: unknown;
  /** Writes the text; `over` is the hash of a file that it may replace. Resolves with whether it is on disk. */
  save: (to?: { path: string; over: string | null }) => Promise<boolean>;
}

export function useSave(ui: Ui): Save {
  const builder = useBuilder();
  const noWrite = useNoWrite();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const save: Save["save"] = async (to) => {
    const { file } = builder.snapshot();
    const { text, dirty } = builder.document.snapshot();
    if (noWrite) return announce(`Not saved: ${noWrite}`), false;
    if (busy) return false;
    if (!to && file.hash !== null && !dirty) return announce("Nothing to save"), true;
    const path = to?.path ?? file.path;
    if (path === null || (!to && file.hash === null)) return ui.setOpen({ dialog: "save-as" }), false;
    setBusy(true);
    setError(null);
    try {
      const written = await writeFile(path, text, to ? to.over : file.hash);
      builder.saved(text, { path: written.path, hash: written.hash });
      announce("Saved");
      for (const key of ["files", "compositions", "composition"]) void queryClient.invalidateQueries({ queryKey: [key] });
      return true;
    } catch (failure) {
      const conflict = conflictOf(failure);
      if (conflict && (!to || to.path === file.path)) ui.setOpen({ dialog: "conflict", conflict });
      else setError(failure);
      announce(conflict ? "Not saved: the file changed on disk" : "Not saved");
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { off: noWrite, busy, error, save };
}
