// Every query that more than one screen uses. Keys begin with the thing they are about, so that the
// event stream can refresh them (see events.ts).
import { QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiError, api, unwrap } from "./client";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      refetchOnWindowFocus: false,
      retry: (count, error) => !(error instanceof ApiError && error.status < 500) && count < 2,
    },
  },
});

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: () => unwrap(api.GET("/api/v1/session")),
  staleTime: Infinity,
  retry: false,
  // The gate and the sign-in screen both use it: a second use must not ask again after a refusal.
  retryOnMount: false,
});

export const questionsQuery = queryOptions({
  queryKey: ["questions"],
  queryFn: () => unwrap(api.GET("/api/v1/questions")),
});

export const serversQuery = queryOptions({
  queryKey: ["servers"],
  queryFn: () => unwrap(api.GET("/api/v1/servers")),
});

/** Files below the folders of compositions. */
export const filesQuery = queryOptions({
  queryKey: ["files"],
  queryFn: () => unwrap(api.GET("/api/v1/files")),
  retry: false,
});

export const compositionsQuery = queryOptions({
  queryKey: ["compositions"],
  queryFn: () => unwrap(api.GET("/api/v1/compositions")),
});

export const compositionQuery = (name: string) =>
  queryOptions({
    queryKey: ["composition", name],
    queryFn: () => unwrap(api.GET("/api/v1/compositions/{name}", { params: { path: { name } } })),
  });

export const toolsQuery = queryOptions({
  queryKey: ["tools"],
  queryFn: () => unwrap(api.GET("/api/v1/tools")),
});

export const runQuery = (id: string) =>
  queryOptions({
    queryKey: ["run", id],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{id}", { params: { path: { id }, query: { preview: true } } })),
  });

export const runPlanQuery = (id: string) =>
  queryOptions({
    queryKey: ["run-plan", id],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{id}/plan", { params: { path: { id } } })),
    staleTime: Infinity,
  });

export const runSourceQuery = (id: string) =>
  queryOptions({
    queryKey: ["run-source", id],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{id}/source", { params: { path: { id } } })),
    staleTime: Infinity,
  });

export const stepQuery = (id: string, path: string) =>
  queryOptions({
    queryKey: ["run-step", id, path],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{id}/steps/{path}", { params: { path: { id, path } } })),
  });
