import type { Tool } from "@/api/types";
import { plainText } from "@/lib/safe-text";
import { SafeText } from "@/parts/SafeText";
import { failureRate, milliseconds, observedOf } from "./rows";

const HINTS: Record<string, string> = { read_only: "readOnlyHint", destructive: "destructiveHint", idempotent: "idempotentHint", open_world: "openWorldHint" };

/** What was measured, and what its source declares. */
export function Facts({ tool }: { tool: Tool }) {
  const observed = observedOf(tool);
  const failing = observed !== null && observed.calls > 0 && observed.failures / observed.calls >= 0.05;
  return (
    <dl className="tfacts">
      {observed ? (
        <>
          {observed.p50 !== null && <Fact label="p50">{milliseconds(observed.p50)}</Fact>}
          {observed.p95 !== null && <Fact label="p95">{milliseconds(observed.p95)}</Fact>}
          <Fact label="Failed" tone={failing ? "bad" : undefined}>{failureRate(observed)}</Fact>
        </>
      ) : (
        <Fact label="Measured">not called yet</Fact>
      )}
      {Object.entries(tool.annotations).filter(([, value]) => value !== null).map(([key, value]) => <Fact key={key} label={HINTS[key] ?? key}><SafeText text={String(value)} most={60} /></Fact>)}
      <Fact label="Asks first">{tool.confirms ? "yes" : "no"}</Fact>
      {tool.tags.length > 0 && <Fact label="Tags"><SafeText text={tool.tags.join(", ")} most={200} /></Fact>}
      {tool.scopes.length > 0 && <Fact label="Scopes"><SafeText text={tool.scopes.join(", ")} most={200} /></Fact>}
      {tool.pin && <Fact label="Pinned to"><code title={plainText(tool.pin)}><SafeText text={tool.pin.slice(0, 8)} /></code></Fact>}
      {tool.composed_of && <Fact label="Made of"><SafeText text={Object.keys(tool.composed_of).join(", ")} most={300} /></Fact>}
      <Fact label="Definition"><code title={tool.hash}>{tool.hash.slice(0, 8)}</code></Fact>
    </dl>
  );
}

function Fact({ label, tone, children }: { label: string; tone?: string; children: React.ReactNode }) {
  return (
    <div className={tone}>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}
