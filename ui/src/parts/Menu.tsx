import * as Dropdown from "@radix-ui/react-dropdown-menu";
import type { ReactNode } from "react";
import { Icon } from "./Icon";

export interface MenuItem {
  label: ReactNode;
  icon?: string;
  hint?: ReactNode;
  checked?: boolean;
  off?: string | false | null;
  onSelect: () => void;
}

/** A menu under a trigger. Not modal: a modal one would write a style element, which the policy forbids. */
export function Menu({ trigger, items, label }: { trigger: ReactNode; items: (MenuItem | null)[]; label: string }) {
  return (
    <Dropdown.Root modal={false}>
      <Dropdown.Trigger asChild>{trigger}</Dropdown.Trigger>
      <Dropdown.Portal>
        <Dropdown.Content className="menu" align="end" sideOffset={4} collisionPadding={8} aria-label={label} loop>
          {items.map((item, i) =>
            item === null ? (
              <Dropdown.Separator key={i} className="menu-line" />
            ) : (
              <Dropdown.Item key={i} className="menu-it" disabled={!!item.off} title={item.off || undefined} onSelect={item.onSelect}>
                {item.checked !== undefined ? (
                  <span className="menu-check">{item.checked && <Icon name="s-success" label="chosen" small />}</span>
                ) : (
                  item.icon && <Icon name={item.icon} />
                )}
                <span className="ell">{item.label}</span>
                {(item.hint || item.off) && <span className="r">{item.off || item.hint}</span>}
              </Dropdown.Item>
            ),
          )}
        </Dropdown.Content>
      </Dropdown.Portal>
    </Dropdown.Root>
  );
}
