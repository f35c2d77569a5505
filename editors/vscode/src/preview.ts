// The page of a graph. Nothing here knows the editor, so that tests can call it.

import { randomBytes } from "node:crypto";

/** A value that no content can guess. */
export function nonce(): string {
  return randomBytes(16).toString("base64");
}

/** A text inside of HTML. */
export function escaped(text: string): string {
  const names: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (letter) => names[letter] ?? letter);
}

/** A drawing as the source of an image: in an image, no script runs and nothing is loaded. */
function imageOf(svg: string): string {
  return `data:image/svg+xml;base64,${Buffer.from(svg, "utf8").toString("base64")}`;
}

/** The page with a drawing. It has no script at all. */
export function drawingPage(title: string, svg: string): string {
  const style = nonce();
  return page(
    title,
    `default-src 'none'; img-src data:; style-src 'nonce-${style}'`,
    style,
    "body { margin: 0; padding: 1rem; } img { max-width: none; background: #fff; border-radius: 4px; }",
    `<img alt="${escaped(`The graph of ${title}`)}" src="${imageOf(svg)}">`,
  );
}

/** The page that says why there is no drawing. */
export function problemPage(title: string, problem: string): string {
  const style = nonce();
  return page(
    title,
    `default-src 'none'; style-src 'nonce-${style}'`,
    style,
    "pre { white-space: pre-wrap; }",
    `<p>There is no graph of ${escaped(title)}:</p><pre>${escaped(problem)}</pre>`,
  );
}

function page(title: string, policy: string, styleNonce: string, style: string, body: string): string {
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${escaped(policy)}">
<title>${escaped(title)}</title>
<style nonce="${styleNonce}">${style}</style>
</head>
<body>${body}</body>
</html>`;
}
