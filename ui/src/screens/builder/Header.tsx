import { Link } from "@tanstack/react-router";
import { plural, shortId } from "@/lib/format";
import { Button, IconButton } from "@/parts/Button";
import { Icon } from "@/parts/Icon";
import { Menu } from "@/parts/Menu";
import { SafeText } from "@/parts/SafeText";
import { State } from "@/parts/State";
import { copy } from "@/parts/Copy";
import { PartTag } from "../run/Header";
import { useBuilder, useShown, useText } from "./builder";
import { nameOfFile } from "./files";
import { useRunOff } from "./RunDialog";
import type { ShownRun } from "./run";
import type { Save } from "./save";
import { useUi } from "./ui";

export function Title() {
  const path = useShown((shown) => shown.file.path);
  const dirty = useText((now) => now.dirty);
  const changes = useText((now) => now.changes);
  return (
    <>
      <nav className="crumb" aria-label="Where you are">
        <Link to="/compositions" search={{}}>Compositions</Link>
        <span aria-hidden="true">/</span>
        <h1 className="ell">{path ? <SafeText text={nameOfFile(path)} most={120} /> : "New composition"}</h1>
      </nav>
      {dirty && <span className="tag" role="status">{plural(changes, "unsaved change")}</span>}
    </>
  );
}

/** Downloads the text: also where it cannot be saved. */
function download(text: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function Actions({ save, run }: { save: Save; run: ShownRun | null }) {
  const builder = useBuilder();
  const ui = useUi();
  const { canUndo, canRedo } = { canUndo: useText((now) => now.canUndo), canRedo: useText((now) => now.canRedo) };
  const file = useShown((shown) => shown.file);
  const runOff = useRunOff();
  const noFile = file.hash === null ? "it is not saved yet" : null;
  const text = () => builder.document.snapshot().text;
  return (
    <>
      {run && (
        <Link to="/runs/$id" params={{ id: run.id }} className="b-shown wide-only" title="The run whose states and values are shown">
          <State state={run.status} /> {run.part && <PartTag part={run.part} />} <span className="num muted">{shortId(run.id)}</span>
        </Link>
      )}
      <IconButton icon="i-undo" label="Undo" kind="ghost" off={canUndo ? null : "nothing to undo"} onClick={() => builder.undo()} />
      <IconButton icon="i-redo" label="Redo" kind="ghost" off={canRedo ? null : "nothing to redo"} onClick={() => builder.redo()} />
      <Button className="wide-only" onClick={() => ui.setOpen({ dialog: "words" })} icon="i-words">Change by words</Button>
      <Button className="wide-only" onClick={() => ui.setOpen({ dialog: "versions" })}>Versions</Button>
      <Button icon="i-play" keys="R" off={runOff} onClick={() => ui.setOpen({ dialog: "run" })}>Run</Button>
      <Button kind="primary" keys="Ctrl S" off={save.off} busy={save.busy} onClick={() => void save.save()}>Save</Button>
      <Menu
        label="More for this composition"
        trigger={<Button icon="i-dots" kind="ghost" aria-label="More for this composition" />}
        items={[
          { label: "Change by words…", icon: "i-words", onSelect: () => ui.setOpen({ dialog: "words" }) },
          { label: "Versions: unsaved changes and what they break", icon: "i-cmp", onSelect: () => ui.setOpen({ dialog: "versions" }) },
          null,
          { label: "Copy the text", icon: "i-copy", onSelect: () => void copy(text(), "Copied the text") },
          { label: "Download", icon: "i-in", onSelect: () => download(text(), file.path ? nameOfFile(file.path) : "composition.yaml") },
          { label: "Save as…", icon: "i-out", off: save.off, onSelect: () => ui.setOpen({ dialog: "save-as" }) },
          null,
          { label: "Rename the file…", icon: "i-words", off: save.off ?? noFile, onSelect: () => ui.setOpen({ dialog: "rename-file" }) },
          { label: "Delete the file…", icon: "i-x", off: save.off ?? noFile, onSelect: () => ui.setOpen({ dialog: "delete-file" }) },
        ]}
      />
    </>
  );
}

/** Beside the title: why the text cannot be saved, so that nobody finds out only at the end. */
export function NoSave({ why }: { why: string }) {
  return (
    <p className="b-nosave" role="note">
      <Icon name="i-warn" label="warning" />
      You can edit and run this, and copy or download the text. It cannot be saved here: {why}.
    </p>
  );
}
