import assert from "node:assert/strict";
import { test } from "node:test";

import { drawingPage, nonce, problemPage } from "../src/preview";

const EVIL = `<script>alert(1)</script><img src="https://example.org/x" onerror='go()'>`;

function policyOf(page: string): string {
  const found = /Content-Security-Policy" content="([^"]*)"/.exec(page);
  assert.ok(found?.[1], "no policy");
  return found[1].replaceAll("&#39;", "'");
}

test("a drawing is an image, and nothing else is allowed", () => {
  const page = drawingPage(EVIL, `<svg>${EVIL}</svg>`);
  assert.ok(!page.includes("<script"), page);
  assert.equal(page.match(/<img/g)?.length, 1, page);
  const policy = policyOf(page);
  assert.match(policy, /^default-src 'none'; img-src data:; style-src 'nonce-[A-Za-z0-9+/=]+'$/);
  const source = /src="data:image\/svg\+xml;base64,([^"]*)"/.exec(page)?.[1] ?? "";
  assert.equal(Buffer.from(source, "base64").toString("utf8"), `<svg>${EVIL}</svg>`);
});

test("a problem is shown as text", () => {
  const page = problemPage("a.yaml", EVIL);
  assert.ok(page.includes("&lt;script&gt;") && !page.includes("<script"), page);
  assert.match(policyOf(page), /^default-src 'none'; style-src 'nonce-/);
});

test("no two pages have the same nonce", () => {
  assert.equal(new Set(Array.from({ length: 100 }, nonce)).size, 100);
});
