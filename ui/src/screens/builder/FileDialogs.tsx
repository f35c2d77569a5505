import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { filesQuery, queryClient } from "@/api/queries";
import { Field } from "@/parts/Field";
import { useBuilder, useShown } from "./builder";
import { conflictOf, deleteFile, newFolder, renameFile } from "./files";
import { useCompositionName } from "./run";
import type { Save } from "./save";
import { ActionDialog } from "./StepDialogs";

const PATH = /^[^/\s\\][^\\]*\.(ya?ml|json)$/;
const forget = () => {
  for (const key of ["files", "compositions", "composition"]) void queryClient.invalidateQueries({ queryKey: [key] });
};
const said = (error: unknown): string => (conflictOf(error) ? "the file changed on disk, or another one has this name: open it again" : error instanceof Error ? error.message : String(error));

function PathField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const roots = useQuery(filesQuery).data?.roots ?? [];
  const error = PATH.test(value) ? null : "a path that ends in .yaml, .yml or .json";
  return (
    <Field label="File" error={error} help={roots.length > 0 ? `Fits ${roots.filter((one) => !one.templates).map((one) => one.pattern).join(" or ")}.` : undefined}>
      {({ id, describedBy }) => <input id={id} aria-describedby={describedBy} aria-invalid={error ? true : undefined} className="input" data-autofocus spellCheck={false} value={value} onChange={(event) => onChange(event.target.value)} />}
    </Field>
  );
}

/** The name that a new composition gets by its text: `compositions/weekly-report.yaml`. */
export function useSuggestedPath(): string {
  const builder = useBuilder();
  const files = useQuery(filesQuery).data;
  const inText = /^"?name"?\s*:\s*"?([A-Za-z0-9_-]+)/m.exec(builder.document.snapshot().text)?.[1];
  const name = useCompositionName() ?? inText ?? "composition";
  const folder = files ? newFolder(files) : "";
  return `${folder ? `${folder}/` : ""}${name}.yaml`;
}

export function SaveAsDialog({ save, onClose }: { save: Save; onClose: () => void }) {
  const suggested = useSuggestedPath();
  const path = useShown((shown) => shown.file.path);
  const [to, setTo] = useState<string | null>(null);
  const value = to ?? path ?? suggested;
  const files = useQuery(filesQuery).data?.files ?? [];
  const exists = files.some((one) => one.path === value) ? "a file of this name exists" : null;
  const run = async () => ((await save.save({ path: value, over: null })) ? null : "it could not be written: the file may exist already, or may not be there");
  return (
    <ActionDialog title="Save as" action="Save" off={save.off ?? exists ?? (PATH.test(value) ? null : "name a file")} onClose={onClose} onDo={run}>
      <PathField value={value} onChange={setTo} />
      {exists && <p className="help bad">{exists}</p>}
    </ActionDialog>
  );
}

export function RenameFileDialog({ onClose }: { onClose: () => void }) {
  const builder = useBuilder();
  const { path, hash } = useShown((shown) => shown.file);
  const [to, setTo] = useState(path ?? "");
  const run = async (): Promise<string | null> => {
    if (path === null || hash === null) return "it is not saved yet";
    try {
      const moved = await renameFile(path, to, hash);
      builder.setFile({ path: moved.path, hash: moved.hash });
      builder.analyzer.refresh(moved.path);
      forget();
      return null;
    } catch (error) {
      return said(error);
    }
  };
  return (
    <ActionDialog title="Rename the file" action="Rename" off={to === path ? "it has this name" : PATH.test(to) ? null : "name a file"} onClose={onClose} onDo={run}>
      <PathField value={to} onChange={setTo} />
      <p className="muted">The name of the composition is in its text; it stays.</p>
    </ActionDialog>
  );
}

/** A deleted file is gone for everybody: it asks, although most of the builder does not. */
export function DeleteFileDialog({ onClose, onGone }: { onClose: () => void; onGone: () => void }) {
  const { path, hash } = useShown((shown) => shown.file);
  const run = async (): Promise<string | null> => {
    if (path === null || hash === null) return "it is not saved yet";
    try {
      await deleteFile(path, hash);
      forget();
      onGone();
      return null;
    } catch (error) {
      return said(error);
    }
  };
  return (
    <ActionDialog title="Delete the file" action="Delete" off={null} onClose={onClose} onDo={run}>
      <p>Deletes <code>{path}</code> on the server. The text stays open here until you leave; nothing else keeps it.</p>
    </ActionDialog>
  );
}
