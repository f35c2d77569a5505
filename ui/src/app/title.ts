// The title of the tab: the number of open questions first, so that a tab in the background shows it.
let screen = "";
let questions = 0;

function write(): void {
  document.title = `${questions > 0 ? `(${questions}) ` : ""}${screen ? `${screen} · ` : ""}Segue`;
}

export function setTitle(title: string): void {
  screen = title;
  write();
}

export function setQuestionCount(count: number): void {
  questions = count;
  write();
}
