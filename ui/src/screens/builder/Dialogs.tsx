import { useNavigate } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { announce } from "@/app/announce";
import { useBuilder, useShown } from "./builder";
import { ConnectDialog } from "./ConnectDialog";
import { DeleteFileDialog, RenameFileDialog, SaveAsDialog } from "./FileDialogs";
import { PinDialog } from "./PinDialog";
import type { Conflict as FileConflict } from "./files";
import { useCompositionName, type ShownRun } from "./run";
import { RunDialog } from "./RunDialog";
import type { Save } from "./save";
import { ExtractDialog, KindDialog, RenameDialog, WrapDialog } from "./StepDialogs";
import { pathsById } from "./steps";
import { useUi } from "./ui";

const Versions = lazy(() => import("./Versions"));
const Conflicted = lazy(() => import("./versions/ConflictDialog").then((module) => ({ default: module.ConflictDialog })));

const Words = lazy(() => import("./Words"));

/** What is open over the builder. */
export function Dialogs({ save, run }: { save: Save; run: ShownRun | null }) {
  const builder = useBuilder();
  const { open, setOpen } = useUi();
  const file = useShown((shown) => shown.file);
  const composition = useCompositionName();
  const navigate = useNavigate();
  if (!open) return null;
  const close = () => setOpen(null);
  switch (open.dialog) {
    case "rename":
      return <RenameDialog step={open.step} onClose={close} />;
    case "wrap":
      return <WrapDialog step={open.step} kind={open.kind} onClose={close} />;
    case "extract":
      return <ExtractDialog step={open.step} folder={file.path?.includes("/") ? file.path.slice(0, file.path.lastIndexOf("/")) : ""} noWrite={save.off} onClose={close} />;
    case "kind":
      return <KindDialog step={open.step} onClose={close} />;
    case "pin":
      return <PinDialog step={open.step} file={file.hash === null ? null : file.path} composition={composition} output={run?.output(pathsById(builder.steps).get(open.step) ?? open.step)} noWrite={save.off} onClose={close} />;
    case "connect":
      return <ConnectDialog from={open.from} to={open.to} run={run} onClose={close} />;
    case "run":
      return <RunDialog part={open.part} onClose={close} />;
    case "save-as":
      return <SaveAsDialog save={save} onClose={close} />;
    case "rename-file":
      return <RenameFileDialog onClose={close} />;
    case "delete-file":
      return <DeleteFileDialog onClose={close} onGone={() => void navigate({ to: "/compositions", search: {}, ignoreBlocker: true })} />;
    case "versions":
      return <Suspense><Versions onClose={close} /></Suspense>;
    case "conflict":
      return <Suspense><Conflict save={save} disk={open.conflict} onClose={close} /></Suspense>;
    case "words":
      return <Suspense><Words onClose={close} /></Suspense>;
  }
}

/** Whatever is chosen becomes the text, as one action that can be undone; then it is written over what is on disk now. */
function Conflict({ save, disk, onClose }: { save: Save; disk: FileConflict; onClose: () => void }) {
  const builder = useBuilder();
  const { path } = builder.snapshot().file;
  const now = builder.document.snapshot();
  if (path === null) return null;
  const write = (text: string, hash: string | null) => {
    builder.document.replace(text);
    void save.save({ path, over: hash }).then((done) => done && onClose());
  };
  const take = (text: string, hash: string) => {
    builder.document.replace(text);
    builder.saved(text, { path, hash });
    announce("The text is that of the disk. Ctrl Z brings yours back.");
    onClose();
  };
  return <Conflicted path={path} disk={disk} mine={now.text} base={now.saved} busy={save.busy} error={save.error} onWrite={write} onTake={take} onClose={onClose} />;
}
