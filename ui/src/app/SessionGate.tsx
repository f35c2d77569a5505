import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, type ReactNode } from "react";
import { ApiError, whenSignedOut } from "@/api/client";
import { connectStream } from "@/api/live";
import { queryClient, sessionQuery } from "@/api/queries";
import { Button } from "@/parts/Button";
import { Empty } from "@/parts/Empty";

const SignIn = lazy(() => import("../screens/sign-in"));

/** Shows the page to a signed-in principal, else the sign-in screen at the same address. */
export function SessionGate({ children }: { children: ReactNode }) {
  const session = useQuery(sessionQuery);
  const signedIn = session.isSuccess;
  useEffect(() => whenSignedOut(() => void queryClient.resetQueries({ queryKey: ["session"] })), []);
  useEffect(() => (signedIn ? connectStream() : undefined), [signedIn]);
  if (session.isSuccess) return children;
  if (session.isPending) return null;
  if (session.error instanceof ApiError && session.error.status === 401)
    return (
      <Suspense>
        <SignIn />
      </Suspense>
    );
  return (
    <main className="gate">
      <Empty title="The server does not answer">
        <p>{session.error.message}</p>
        <Button icon="i-again" onClick={() => void session.refetch()} busy={session.isFetching}>
          Try again
        </Button>
      </Empty>
    </main>
  );
}
