import { useState, type DragEvent } from "react";
import { Icon } from "@/parts/Icon";
import { DRAG } from "./model";
import { useUi } from "./ui";

/** Over a node: it is dragged to another place, its lower handle to the step that needs it. Keys do the same: M and E. */
export function NodeHandles({ step }: { step: string }) {
  const { setOpen } = useUi();
  const [over, setOver] = useState(false);
  const wants = (event: DragEvent) => event.dataTransfer.types.includes(DRAG.connect);
  return (
    <div
      className={`b-handles nopan${over ? " over" : ""}`}
      draggable
      onDragStart={(event) => {
        event.dataTransfer.setData(DRAG.node, JSON.stringify({ id: step }));
        event.dataTransfer.effectAllowed = "move";
      }}
      onDragOver={(event) => {
        if (!wants(event)) return;
        event.preventDefault();
        event.stopPropagation();
        event.dataTransfer.dropEffect = "link";
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        if (!wants(event)) return;
        event.preventDefault();
        event.stopPropagation();
        setOver(false);
        const from = fromOf(event.dataTransfer.getData(DRAG.connect));
        if (from && from !== step) setOpen({ dialog: "connect", from, to: step });
      }}
    >
      <span
        className="b-connect"
        draggable
        aria-hidden="true"
        title={`Drag to the step that needs ${step}`}
        onDragStart={(event) => {
          event.stopPropagation();
          event.dataTransfer.setData(DRAG.connect, JSON.stringify({ id: step }));
          event.dataTransfer.effectAllowed = "link";
        }}
      >
        <Icon name="i-link" small />
      </span>
    </div>
  );
}

function fromOf(text: string): string | null {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "object" && value !== null && "id" in value && typeof value.id === "string" ? value.id : null;
  } catch {
    return null;
  }
}
