import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { compositionsQuery } from "@/api/queries";
import { plural } from "@/lib/format";
import { Button } from "@/parts/Button";
import { Command, Empty } from "@/parts/Empty";
import { SafeText } from "@/parts/SafeText";

/** Why the list is empty, and what to do next. */
export function NoRuns({ filtered, more, searched }: { filtered: boolean; more: (() => void) | null; searched: number }) {
  const compositions = useQuery(compositionsQuery).data?.compositions ?? [];
  const first = compositions[0];
  if (filtered)
    return (
      <Empty title="No run fits these filters">
        {more && <p>{plural(searched, "run")} searched so far.</p>}
        <div className="row">
          {more && <Button icon="i-search" onClick={more}>Search older runs</Button>}
          <Link to="/" search={{}} className="btn">Show all runs</Link>
        </div>
      </Empty>
    );
  return (
    <Empty title="Nothing has run yet">
      {first ? (
        <>
          <p>
            {plural(compositions.length, "composition")} can run: open <Link to="/compositions/$name" params={{ name: first.name }}><SafeText text={first.name} /></Link>, or run it from a terminal.
          </p>
          <Command text={`segue run ${first.name}`} />
        </>
      ) : (
        <>
          <p>Make a composition first. This writes an example and its configuration:</p>
          <Command text="segue init" />
        </>
      )}
      <p className="muted">A run appears here at once, wherever it was started: in a terminal, over the API, or by an agent.</p>
    </Empty>
  );
}
