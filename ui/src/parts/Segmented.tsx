import type { ReactNode } from "react";
import { Icon } from "./Icon";

interface Option<T extends string> {
  value: T;
  label: ReactNode;
  icon?: string;
  title?: string;
}

/** One of a few: a radio group that looks like joined buttons. */
export function Segmented<T extends string>(props: {
  label: string;
  value: T;
  options: Option<T>[];
  onChange: (value: T) => void;
  mini?: boolean;
}) {
  const { label, value, options, onChange, mini } = props;
  const move = (by: number) => {
    const at = options.findIndex((option) => option.value === value);
    const next = options[(at + by + options.length) % options.length];
    if (next) onChange(next.value);
  };
  return (
    <div
      className={mini ? "seg mini" : "seg"}
      role="radiogroup"
      aria-label={label}
      onKeyDown={(event) => {
        const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (!by) return;
        event.preventDefault();
        event.stopPropagation();
        move(by);
        const group = event.currentTarget;
        requestAnimationFrame(() => group.querySelector<HTMLElement>("[aria-checked=true]")?.focus());
      }}
    >
      {options.map((option) => {
        const on = option.value === value;
        return (
          <button
            key={option.value}
            type="button"
            role="radio"
            aria-checked={on}
            tabIndex={on ? 0 : -1}
            title={option.title}
            className={on ? "on" : undefined}
            onClick={() => onChange(option.value)}
          >
            {option.icon && <Icon name={option.icon} />}
            {option.label}
          </button>
        );
      })}
    </div>
  );
}
