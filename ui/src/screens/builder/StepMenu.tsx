import * as Dropdown from "@radix-ui/react-dropdown-menu";
import { Icon } from "@/parts/Icon";
import { useBuilder, useShown } from "./builder";
import { usePartOff } from "./RunDialog";
import { stepActions } from "./step-actions";
import { useUi } from "./ui";

/** The menu of a step at a point of the window. Not modal: a modal one would write a style element. */
export function StepMenu({ at, onClose }: { at: { x: number; y: number }; onClose: () => void }) {
  const builder = useBuilder();
  const step = useShown((shown) => shown.selected);
  const actions = stepActions(builder, useUi(), step, usePartOff());
  return (
    <Dropdown.Root open modal={false} onOpenChange={(open) => !open && onClose()}>
      <Dropdown.Trigger asChild>
        <button type="button" tabIndex={-1} aria-label={`Menu of ${step ?? ""}`} className="b-menu-at" style={{ left: at.x, top: at.y }} />
      </Dropdown.Trigger>
      <Dropdown.Portal>
        <Dropdown.Content className="menu" align="start" collisionPadding={8} aria-label={`What can be done with ${step ?? ""}`} loop onCloseAutoFocus={(event) => event.preventDefault()}>
          {actions.map((one) => (
            <Dropdown.Item key={one.id} className="menu-it" disabled={!!one.off} title={one.off ?? undefined} onSelect={one.run}>
              <Icon name={one.icon} />
              <span className="ell">{one.label}</span>
              <span className="r">{one.off ?? <kbd>{one.keys}</kbd>}</span>
            </Dropdown.Item>
          ))}
        </Dropdown.Content>
      </Dropdown.Portal>
    </Dropdown.Root>
  );
}
