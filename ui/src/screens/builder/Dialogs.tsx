import { useNavigate } from "@tanstack/react-router";
import { useShown } from "./builder";
import { ConnectDialog } from "./ConnectDialog";
import { DeleteFileDialog, RenameFileDialog, SaveAsDialog } from "./FileDialogs";
import { PinDialog } from "./PinDialog";
import { useCompositionName, type ShownRun } from "./run";
import { RunDialog } from "./RunDialog";
import type { Save } from "./save";
import { ExtractDialog, KindDialog, RenameDialog, WrapDialog } from "./StepDialogs";
import { pathsById } from "./steps";
import { useBuilder } from "./builder";
import { useUi } from "./ui";

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
      return <RunDialog until={open.until} only={open.only} onClose={close} />;
    case "save-as":
      return <SaveAsDialog save={save} onClose={close} />;
    case "rename-file":
      return <RenameFileDialog onClose={close} />;
    case "delete-file":
      return <DeleteFileDialog onClose={close} onGone={() => void navigate({ to: "/compositions", search: {}, ignoreBlocker: true })} />;
    case "conflict":
    case "versions":
    case "words":
      return null;
  }
}
