import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import * as Dropdown from "@radix-ui/react-dropdown-menu";
import { api, unwrap } from "@/api/client";
import type { RunView } from "@/api/types";
import { clock, shortId } from "@/lib/format";
import { Button } from "@/parts/Button";
import { StateIcon } from "@/parts/State";

/** Other runs of the same composition, newest first. */
export function CompareMenu({ run }: { run: RunView }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  const others = useQuery({
    queryKey: ["runs-of", run.name],
    queryFn: () => unwrap(api.GET("/api/v1/runs", { params: { query: { name: run.name, limit: 12 } } })),
    enabled: open,
  });
  const list = (others.data?.runs ?? []).filter((other) => other.run_id !== run.run_id && other.name === run.name);
  return (
    <Dropdown.Root modal={false} open={open} onOpenChange={setOpen}>
      <Dropdown.Trigger asChild>
        <Button icon="i-cmp" className="wide-only">Compare</Button>
      </Dropdown.Trigger>
      <Dropdown.Portal>
        <Dropdown.Content className="menu" align="end" sideOffset={4} aria-label="Compare with another run">
          {list.map((other) => (
            <Dropdown.Item key={other.run_id} className="menu-it" onSelect={() => void navigate({ to: "/compare", search: { left: other.run_id, right: run.run_id } })}>
              <StateIcon state={other.status} />
              <code>{shortId(other.run_id)}</code>
              <span className="r num">{clock(other.started_at)}</span>
            </Dropdown.Item>
          ))}
          {list.length === 0 && <Dropdown.Item className="menu-it" disabled>{others.isPending ? "Loading" : "No other run of this composition"}</Dropdown.Item>}
        </Dropdown.Content>
      </Dropdown.Portal>
    </Dropdown.Root>
  );
}
