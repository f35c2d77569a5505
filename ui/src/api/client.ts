import createClient, { type Middleware } from "openapi-fetch";
import type { paths } from "./schema";
import type { Problem } from "./types";


let csrf = "";
let onSignedOut: () => void = () => {};

/** The header value that the server asks of every change made with a cookie. */
export function setCsrf(value: string | null): void {
  csrf = value ?? "";
}

/** Called when the server says that there is no session any more. */
export function whenSignedOut(callback: () => void): void {
  onSignedOut = callback;
}

const session: Middleware = {
  onRequest({ request }) {
    if (request.method !== "GET" && csrf) request.headers.set("X-Segue-CSRF", csrf);
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
