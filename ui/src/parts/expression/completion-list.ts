// The list of completions below an expression. It stands in the flow of the page, so it never covers the next field, and
// in the editor's shadow root, so that the editor can name its chosen option.
import { plainText } from "@/lib/safe-text";
import type { ExpressionCompletion } from "./types";

const SHOWN_MOST = 100;

export class CompletionList {
  readonly dom = document.createElement("ul");
  private items: ExpressionCompletion[] = [];
  private at = 0;

  constructor(
    label: string,
    private readonly onPick: (item: ExpressionCompletion) => void,
  ) {
    this.dom.id = "completions";
    this.dom.setAttribute("role", "listbox");
    this.dom.setAttribute("aria-label", `Completions of ${label}`);
    this.dom.hidden = true;
    // The focus stays in the editor.
    this.dom.addEventListener("mousedown", (event) => event.preventDefault());
    this.dom.addEventListener("click", (event) => {
      const option = (event.target as Element).closest("li");
      const item = option && this.items[[...this.dom.children].indexOf(option)];
      if (item) this.onPick(item);
    });
  }

  get open(): boolean {
    return this.items.length > 0;
  }
  get chosen(): ExpressionCompletion | null {
    return this.items[this.at] ?? null;
  }
  /** The id of the chosen option. */
  get active(): string | null {
    return this.open ? `completion-${this.at}` : null;
  }

  show(items: ExpressionCompletion[]): void {
    this.items = items.slice(0, SHOWN_MOST);
    this.at = 0;
    this.dom.hidden = !this.open;
    this.dom.replaceChildren(...this.items.map((item, i) => option(item, i)));
    if (this.open) this.dom.scrollIntoView?.({ block: "nearest" });
    this.mark();
  }

  move(by: number): void {
    this.at = (this.at + by + this.items.length) % this.items.length;
    this.mark();
  }

  private mark(): void {
    [...this.dom.children].forEach((child, i) => child.setAttribute("aria-selected", String(i === this.at)));
    this.dom.children[this.at]?.scrollIntoView?.({ block: "nearest" });
  }
}

function option(item: ExpressionCompletion, i: number): HTMLElement {
  const row = document.createElement("li");
  row.id = `completion-${i}`;
  row.setAttribute("role", "option");
  row.title = plainText((item.documentation ?? "").slice(0, 600));
  const detail = `${item.required ? "required " : ""}${item.detail ?? item.kind}`;
  // The space is for screen readers, which read both as one name.
  row.append(part("label", item.label), " ", part("detail", detail));
  return row;
}

function part(className: string, text: string): HTMLElement {
  const span = document.createElement("bdi");
  span.className = className;
  span.textContent = plainText(text.slice(0, 200));
  return span;
}
