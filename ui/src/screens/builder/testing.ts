// For the tests of the builder's parts: a server of its language routes, and a context over a value.
import axe from "axe-core";
import { vi } from "vitest";
import type { BuilderContext, Edit } from "./model";

type Answer = (body: Record<string, unknown>) => unknown;

export interface FakeServer {
  /** Requests by the end of their path. */
  requests: { path: string; body: Record<string, unknown> }[];
}

/** Answers `POST …/<path>`; a route that is not listed answers 404. An answer may be a promise. */
export function serve(routes: Record<string, Answer>): FakeServer {
  const server: FakeServer = { requests: [] };
  vi.stubGlobal("fetch", async (request: Request) => {
    const path = new URL(request.url).pathname.replace(/^\/api\/v1\/(language\/)?/, "");
    const text = request.method === "GET" ? "" : await request.text();
    const body = (text ? JSON.parse(text) : {}) as Record<string, unknown>;
    server.requests.push({ path, body });
    const answer = routes[path];
    if (!answer) return new Response(JSON.stringify({ detail: `no route ${path}` }), { status: 404, headers: { "Content-Type": "application/problem+json" } });
    const data = await answer(body);
    if (request.signal.aborted) throw new DOMException("aborted", "AbortError");
    if (data instanceof Response) return data;
    return new Response(JSON.stringify(data), { status: 200, headers: { "Content-Type": "application/json" } });
  });
  return server;
}

export function contextOf(edits: Edit[], more: Partial<BuilderContext> = {}): BuilderContext {
  return {
    name: "x.yaml",
    text: "steps: []",
    analysis: null,
    run: null,
    select: () => {},
    edit: (edit) => {
      edits.push(edit);
      return Promise.resolve(null);
    },
    ...more,
  };
}

/** Findings of axe, as words. Colours need a browser: dev/look.mjs measures them. */
export async function accessibility(element: Element = document.body): Promise<string[]> {
  const { violations } = await axe.run(element, { rules: { "color-contrast": { enabled: false }, region: { enabled: false } } });
  return violations.map((one) => `${one.impact} ${one.id}: ${one.nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
}

/** The browser's dialogs, which jsdom has not. */
export function stubDialogs(): void {
  HTMLDialogElement.prototype.showModal = function show(this: HTMLDialogElement) {
    this.open = true;
  };
  HTMLDialogElement.prototype.close = function close(this: HTMLDialogElement) {
    this.open = false;
  };
}

/** The browser's measuring, which jsdom has not. */
export function stubMeasuring(): void {
  Range.prototype.getClientRects = () => [] as unknown as DOMRectList;
  Range.prototype.getBoundingClientRect = () => new DOMRect();
  HTMLCanvasElement.prototype.getContext = () => null;
  for (const side of ["clientHeight", "clientWidth"]) Object.defineProperty(Element.prototype, side, { configurable: true, get: () => 700 });
}
if (typeof DOMRect === "undefined") {
  globalThis.DOMRect = class {
    x = 0;
    y = 0;
    width = 0;
    height = 0;
    top = 0;
    left = 0;
    right = 0;
    bottom = 0;
    toJSON(): unknown {
      return {};
    }
    static fromRect(): DOMRect {
      return new this();
    }
  } as unknown as typeof DOMRect;
}
