import { Dialog } from "@/parts/Dialog";
import { SHORTCUTS } from "./shortcut-list";

export function ShortcutSheet({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" open onClose={onClose} wide>
      <div className="sheet" tabIndex={0} role="region" aria-label="Keys">
        {SHORTCUTS.map(({ group, keys }) => (
          <section key={group}>
            <h3>{group}</h3>
            <ul>
              {keys.map(([key, what]) => (
                <li key={key}>
                  {what}
                  <span>{key.split(" ").map((one) => <kbd key={one}>{one}</kbd>)}</span>
                </li>
              ))}
            </ul>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
