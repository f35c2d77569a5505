import createClient, { type Middleware } from "openapi-fetch";
import type { paths } from "./schema";
import type { Problem } from "./types";


const CSRF = "segue-csrf";
let inMemory: string | null = null;
let onSignedOut: () => void = () => {};

/**
 * Keeps the header value that the server asks of every change made with a cookie. Only the answer to a sign-in has
 * it. It is in the storage of this origin, so that a reload and other tabs have it, and a server at another port of
 * this host, which gets the cookie, has not.
 */
export function setCsrf(value: string | null): void {
  inMemory = value;
  try {
    if (value) localStorage.setItem(CSRF, value);
    else localStorage.removeItem(CSRF);
  } catch {
    // The browser keeps nothing: the value is good until a reload.
  }
}

/** After a sign-in at an issuer the server redirects here with the value behind `#`, which no log has. */
export function takeCsrf(): void {
  const value = /^#csrf=([0-9a-f]+)$/.exec(location.hash)?.[1];
  if (location.pathname !== "/sign-in" || !value) return;
  setCsrf(value);
  history.replaceState(null, "", "/");
}

/** Read at each request: another tab may have signed in again. */
function csrf(): string | null {
  try {
    return localStorage.getItem(CSRF) ?? inMemory;
  } catch {
    return inMemory;
  }
}

/** Called when the server says that there is no session any more. */
export function whenSignedOut(callback: () => void): void {
  onSignedOut = callback;
}

const session: Middleware = {
  onRequest({ request, schemaPath }) {
    const value = csrf();
    if (value && (request.method !== "GET" || schemaPath === "/api/v1/session")) request.headers.set("X-Segue-CSRF", value);
    return request;
  },
  onResponse({ response, schemaPath }) {
    if (response.status === 401 && schemaPath !== "/api/v1/session") onSignedOut();
  },
};

/**
 * `path` of a step is one segment for the server: "/" inside it is escaped like everything else.
 * `fetch` is looked up at each call, so that tests can replace it.
 */
export const api = createClient<paths>({
  baseUrl: typeof location === "undefined" ? "http://localhost" : location.origin,
  credentials: "same-origin",
  fetch: (request) => globalThis.fetch(request),
});
api.use(session);

/** A refusal of the server, with its problem document. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    super(problem.detail || problem.title || `the server answered ${status}`);
  }
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of an answer, or an `ApiError`. */
export async function unwrap<T>(answer: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await answer;
  if (response.ok) return data as T;
  const problem = typeof error === "object" && error !== null ? (error as Partial<Problem>) : { detail: String(error ?? "") };
  throw new ApiError(response.status, problem);
}
