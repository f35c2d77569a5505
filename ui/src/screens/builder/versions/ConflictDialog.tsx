import { useMemo, useState } from "react";
import { withHunks } from "@/lib/line-diff";
import { Button } from "@/parts/Button";
import { Dialog } from "@/parts/Dialog";
import { Failure } from "@/parts/Failure";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { proposed, type Side } from "./merge";
import { useCompared, VersionDiff } from "./VersionDiff";

export interface ConflictDialogProps {
  path: string;
  /** What is on disk now; without a text the file was deleted. */
  disk: { text: string | null; hash: string | null };
  mine: string;
  /** What was on disk when the text was opened or saved last. */
  base: string | null;
  busy: boolean;
  error?: unknown;
  /** Writes this text over the file that has `hash`, or where it was deleted as a new one. */
  onWrite: (text: string, hash: string | null) => void;
  /** Shows what is on disk in place of the text here. */
  onTake: (text: string, hash: string) => void;
  onClose: () => void;
}

/** The file changed on disk since it was read. Nothing is written until one of the ways is chosen. */
export function ConflictDialog(props: ConflictDialogProps) {
  const { path, disk, mine, busy, onWrite, onTake, onClose, error } = props;
  const merge = useMerge(disk.text ?? "", mine, props.base);
  const { text: onDisk, hash } = disk;
  const mixed = merge.text !== mine && merge.text !== (onDisk ?? "");
  return (
    <Dialog
      title="The file changed on disk"
      open
      wide
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Not now</Button>
          {onDisk !== null && hash !== null && <Button busy={busy} onClick={() => onTake(onDisk, hash)}>Take theirs</Button>}
          <Button busy={busy} onClick={() => onWrite(mine, hash)}>{onDisk === null ? "Write it again" : "Keep mine"}</Button>
          {onDisk !== null && <Button kind="primary" off={mixed ? null : "choose changes of both sides first"} busy={busy} onClick={() => onWrite(merge.text, hash)}>Save the merge</Button>}
        </>
      }
    >
      <p>
        {onDisk === null ? <><SafeText text={path} most={200} /> was deleted since it was opened here.</> : <>Another program wrote <SafeText text={path} most={200} /> since it was opened here. Choose a side for each change, or one side for all.</>}
      </p>
      {error !== undefined && error !== null && <Failure error={error} />}
      {onDisk !== null && (
        <VersionDiff
          before={{ label: "on disk", text: onDisk }}
          after={{ label: "mine", text: mine }}
          name={path}
          side={(i) => (merge.sides[i] === "disk" ? "before" : "after")}
          hunk={(i) => <Segmented mini label={`Side of change ${i + 1}`} value={merge.sides[i] ?? "mine"} options={[{ value: "disk", label: "Theirs" }, { value: "mine", label: "Mine" }]} onChange={(side) => merge.choose(i, side)} />}
        />
      )}
    </Dialog>
  );
}

function useMerge(disk: string, mine: string, base: string | null) {
  const compared = useCompared(disk, mine);
  const first = useMemo(() => proposed(compared.after, compared.hunks, base), [compared, base]);
  const [chosen, setChosen] = useState<ReadonlyMap<number, Side>>(new Map());
  const sides = first.map((side, i) => chosen.get(i) ?? side);
  const text = withHunks(compared.before, compared.after, compared.hunks, (i) => sides[i] === "mine");
  return { sides, text, choose: (i: number, side: Side) => setChosen((now) => new Map(now).set(i, side)) };
}
