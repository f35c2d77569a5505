import { ApiError } from "@/api/client";
import { Button } from "./Button";
import { Icon } from "./Icon";
import { SafeText } from "./SafeText";

/** What the server refused, with its help. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const problem = error instanceof ApiError ? error.problem : null;
  return (
    <div className="err" role="alert">
      <div className="eh">
        <Icon name="s-failed" />
        <SafeText text={error instanceof Error ? error.message : String(error)} />
        {problem?.code && <code>{problem.code}</code>}
      </div>
      {(problem?.help || retry) && (
        <div className="eb">
          {problem?.help && <p><SafeText text={problem.help} /></p>}
          {retry && <Button icon="i-again" size="small" onClick={retry}>Try again</Button>}
        </div>
      )}
    </div>
  );
}
