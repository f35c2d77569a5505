import { useQuery } from "@tanstack/react-query";
import { useBlocker, useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { stream } from "@/api/events";
import { Screen } from "@/app/Screen";
import { plainText } from "@/lib/safe-text";
import { Button } from "@/parts/Button";
import { Dialog } from "@/parts/Dialog";
import { Failure } from "@/parts/Failure";
import { Skeleton } from "@/parts/Skeleton";
import { beginning, fileOf } from "./beginnings";
import { Builder, BuilderCtx, useShown, useText } from "./builder";
import "./builder.css";
import { nameOfFile, readFile } from "./files";
import { Actions, Title } from "./Header";
import { language } from "./language";
import type { FileState } from "./builder";
import { NewComposition } from "./NewComposition";
import type { NamedPlace } from "./places";
import { useShownRun } from "./run";
import { useSave } from "./save";
import { UiCtx, type Open, type Placing, type Ui } from "./ui";
import { Workspace } from "./Workspace";

interface Loaded {
  text: string;
  file: FileState;
  words: boolean;
  recording: string | null;
  /** The run that it begins with: its values are shown. */
  run: string | null;
}

async function load(file: string | undefined, from: string | undefined): Promise<Loaded> {
  // A served composition is edited in its file; one that has none begins a new one.
  const found = file ?? (from?.startsWith("composition:") ? await fileOf(from.slice("composition:".length)) : null);
  if (found !== null) {
    const { path, text, hash } = await readFile(found);
    return { text, file: { path, hash }, words: false, recording: null, run: null };
  }
  const { text, format, recording } = await beginning(from ?? "scratch");
  return { text, file: { path: format === "json" ? "composition.json" : null, hash: null }, words: from === "words", recording: recording ?? null, run: from?.startsWith("run:") ? from.slice("run:".length) : null };
}

export default function Edit() {
  const { file, from } = useSearch({ from: "/edit" });
  // A new composition gets its file when it is saved: the editor stays the same.
  const saved = useRef<string | null>(null);
  const key = file !== undefined && saved.current === file ? null : (file ?? from ?? null);
  const session = useRef<string | null>(null);
  if (key !== null && key !== session.current) {
    session.current = key;
    saved.current = null;
  }
  const loaded = useQuery({
    queryKey: ["edit", session.current],
    queryFn: () => load(file, from),
    enabled: session.current !== null,
    staleTime: Infinity,
    gcTime: 0,
    retry: false,
  });
  if (file === undefined && from === undefined) return <NewComposition />;
  if (loaded.isPending) return <Screen title="Builder"><Skeleton label="Loading the text" /></Screen>;
  if (loaded.isError) return <Screen title="Builder"><div className="pad"><Failure error={loaded.error} retry={() => void loaded.refetch()} /></div></Screen>;
  return <Session key={session.current} loaded={loaded.data} onSaved={(path) => (saved.current = path)} />;
}

function Session({ loaded, onSaved }: { loaded: Loaded; onSaved: (path: string) => void }) {
  const { step = null } = useSearch({ from: "/edit" });
  const [builder, setBuilder] = useState<Builder | null>(null);
  useEffect(() => {
    const made = new Builder(language, loaded.text, loaded.file, step, loaded.recording);
    if (loaded.run !== null) made.showRun(loaded.run);
    // Tools, compositions and files changed on the server: findings may be others.
    const off = stream.on("changed", () => made.analyzer.refresh());
    setBuilder(made);
    return () => {
      off();
      made.end();
    };
    // The step of the address is the first selection only.
    // eslint-disable-next-line
  }, [loaded]);
  if (!builder) return <Screen title="Builder"><Skeleton label="Opening the editor" /></Screen>;
  return (
    <BuilderCtx value={builder}>
      <Opened words={loaded.words} onSaved={onSaved} />
    </BuilderCtx>
  );
}

function Opened({ words, onSaved }: { words: boolean; onSaved: (path: string) => void }) {
  const [open, setOpen] = useState<Open | null>(words ? { dialog: "words" } : null);
  const [placing, setPlacing] = useState<Placing | null>(null);
  const [target, setTarget] = useState<NamedPlace | null>(null);
  const ui = useMemo<Ui>(() => ({ open, setOpen, placing, setPlacing, target, setTarget }), [open, placing, target]);
  const save = useSave(ui);
  const run = useShownRun();
  const file = useShown((shown) => shown.file);
  useAddress(onSaved);
  return (
    <UiCtx value={ui}>
      <Screen title={file.path ? plainText(nameOfFile(file.path)) : "New composition"} head={<Title />} actions={<Actions save={save} run={run} />}>
        {save.error ? <div className="pad"><Failure error={save.error} /></div> : null}
        <Workspace save={save} run={run} />
        <Guard onSave={() => save.save()} saveOff={save.off} />
      </Screen>
    </UiCtx>
  );
}

/** File and selection are in the address. */
function useAddress(onSaved: (path: string) => void): void {
  const navigate = useNavigate({ from: "/edit" });
  const { path, hash } = useShown((shown) => shown.file);
  const selected = useShown((shown) => shown.selected);
  const kept = hash === null ? null : path;
  useEffect(() => {
    if (kept !== null) onSaved(kept);
    void navigate({ search: (old) => ({ ...(kept === null ? old : { file: kept }), step: selected ?? undefined }), replace: true, ignoreBlocker: true });
    // eslint-disable-next-line
  }, [kept, selected]);
}

/** Leaving with unsaved changes asks first. */
function Guard({ onSave, saveOff }: { onSave: () => Promise<boolean>; saveOff: string | null }) {
  const dirty = useText((now) => now.dirty);
  const blocker = useBlocker({
    shouldBlockFn: ({ current, next }) => dirty && (current.pathname !== next.pathname || (next.search as { file?: string }).file !== (current.search as { file?: string }).file),
    enableBeforeUnload: dirty,
    withResolver: true,
  });
  if (blocker.status !== "blocked") return null;
  return (
    <Dialog
      title="Unsaved changes"
      open
      onClose={blocker.reset}
      footer={
        <>
          <Button onClick={blocker.reset}>Stay</Button>
          <Button kind="danger" onClick={blocker.proceed}>Leave without saving</Button>
          <Button kind="primary" off={saveOff} onClick={() => void onSave().then((done) => (done ? blocker.proceed() : blocker.reset()))}>Save and leave</Button>
        </>
      }
    >
      <p>The text has changes that are not on disk. If you leave, they are lost.</p>
    </Dialog>
  );
}
