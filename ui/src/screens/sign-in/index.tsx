import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useLocation } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { ApiError, api, setCsrf, unwrap } from "@/api/client";
import { queryClient, sessionQuery } from "@/api/queries";
import { setTitle } from "@/app/title";
import { Button } from "@/parts/Button";
import { Command } from "@/parts/Empty";
import { Failure } from "@/parts/Failure";
import { Field } from "@/parts/Field";
import "./sign-in.css";

/** The link's code is after `#`: it never reaches a log of the server. */
const codeOfLink = (): string => (location.pathname === "/sign-in" ? location.hash.slice(1) : "");

export default function SignIn() {
  const [token, setToken] = useState("");
  const [code] = useState(codeOfLink);
  const sent = useRef(false);
  const { pathname } = useLocation();
  const navigate = useNavigate();
  const signIn = useMutation({
    mutationFn: (body: { token?: string; code?: string }) => unwrap(api.POST("/api/v1/session", { body })),
    onSuccess: (data) => {
      setCsrf(data.csrf);
      setToken("");
      queryClient.setQueryData(sessionQuery.queryKey, data);
      if (pathname === "/sign-in") void navigate({ to: "/", replace: true });
    },
  });
  const { mutate } = signIn;
  // With a code there is no session to ask for yet.
  const session = useQuery({ ...sessionQuery, enabled: !code || signIn.isError });
  const oidc = session.error instanceof ApiError ? session.error.problem.sign_in?.oidc : null;
  useEffect(() => {
    setTitle("Sign in");
    if (!code || sent.current) return;
    sent.current = true;
    history.replaceState(null, "", "/sign-in");
    mutate({ code });
  }, [mutate, code]);
  return (
    <main className="gate">
      <form
        className="signin"
        onSubmit={(event) => {
          event.preventDefault();
          mutate({ token: token.trim() });
        }}
      >
        <div className="brand">
          <svg className="i" aria-hidden="true"><use href="#i-logo" /></svg>
          <h1>Sign in to Segue</h1>
        </div>
        {signIn.error && <Failure error={signIn.error} />}
        <Field label="Token" help="It becomes a cookie that scripts cannot read. The page does not keep it.">
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} className="input" type="password" autoComplete="current-password" value={token} onChange={(event) => setToken(event.target.value)} />
          )}
        </Field>
        <Button kind="primary" size="large" type="submit" busy={signIn.isPending} off={token.trim() ? null : "paste a token first"}>
          Sign in
        </Button>
        {oidc && <a className="btn lg" href={oidc}>Sign in with your organisation</a>}
        <p className="muted">No token? This command prints one, and a link that signs you in once:</p>
        <Command text="segue dev" />
      </form>
    </main>
  );
}
