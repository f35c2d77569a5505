import { Dialog } from "@/parts/Dialog";
import { useBuilder } from "./builder";
import { useBuilderContext } from "./context";
import { ProposalPanel } from "./proposal/ProposalPanel";
import { useCompositionName } from "./run";

/** Says in words what should happen; nothing of the text changes before a part of the proposal is accepted. */
export default function Words({ onClose }: { onClose: () => void }) {
  const builder = useBuilder();
  const context = useBuilderContext();
  const composition = useCompositionName();
  return (
    <Dialog title="Change by words" open wide onClose={onClose}>
      <ProposalPanel context={context} composition={composition} onText={(text) => builder.document.replace(text)} onClose={onClose} />
    </Dialog>
  );
}
