import { Dialog } from "@/parts/Dialog";
import { Button } from "@/parts/Button";
import { useBuilder } from "./builder";
import { VersionDiff } from "./versions/VersionDiff";

/** What differs from the file on disk, as text and as graph, and what of it breaks callers. */
export default function Versions({ onClose }: { onClose: () => void }) {
  const builder = useBuilder();
  const { text, saved, dirty } = builder.document.snapshot();
  return (
    <Dialog title="Unsaved changes" open wide onClose={onClose} footer={<Button onClick={onClose}>Close</Button>}>
      {dirty ? <VersionDiff before={{ label: saved === null ? "nothing" : "on disk", text: saved ?? "" }} after={{ label: "here", text }} name={builder.snapshot().file.path} /> : <p>The text is as it is on disk.</p>}
    </Dialog>
  );
}
