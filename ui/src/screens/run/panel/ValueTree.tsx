import { useState } from "react";
import { bytes } from "@/lib/format";
import { hasCut, isCut } from "@/lib/json-rows";
import { lastId, planPath } from "@/lib/path";
import { CopyButton } from "@/parts/Copy";
import { JsonTree } from "@/parts/JsonTree";
import { SafeText } from "@/parts/SafeText";
import { Segmented } from "@/parts/Segmented";
import { useRunContext } from "../context";
import { downloadUrl, loadMore, type Part } from "../whole-value";

interface Props {
  /** Without a path, a value of the run itself. */
  path?: string;
  part: Part;
  value: unknown;
  template?: unknown;
  title?: string;
}

const RAW_MOST = 64 * 1024;

/** A value as a tree with "copy expression", or raw; arguments also as they are written. */
export function ValueTree({ path, part, value, template, title }: Props) {
  const { model: { run } } = useRunContext();
  const [shape, setShape] = useState<"tree" | "raw" | "template">("tree");
  const name = path ? lastId(planPath(path)) : part;
  const shown = shape === "template" ? template : value;
  const cutWhole = isCut(value) ? value.$cut.bytes : null;
  const options = [
    { value: "tree" as const, label: template === undefined ? "Tree" : "Rendered" },
    ...(template === undefined ? [] : [{ value: "template" as const, label: "Template" }]),
    { value: "raw" as const, label: "Raw" },
  ];
  // Arguments are not a name in a composition; outputs and the run's input are.
  const root = part === "output" && path ? name : part === "input" && !path ? "input" : undefined;
  const absent = value === null || value === undefined;
  return (
    <section aria-label={title ?? part}>
      <div className="sec">
        <h2>{title ?? (part === "input" && path ? "Arguments" : part === "input" ? "Input" : part === "context" ? "Context" : "Output")}</h2>
        <span className="r">
          {cutWhole !== null && <span className="muted num">{bytes(cutWhole)}</span>}
          {!(absent && template === undefined) && <Segmented label="Shape" mini value={shape} options={options} onChange={setShape} />}
          {!absent && (hasCut(value) ? <a className="btn ghost sm" href={downloadUrl(run.run_id, path, part)} download>Download</a> : <CopyButton text={() => JSON.stringify(value, null, 2)} label="Copy as JSON" />)}
        </span>
      </div>
      {absent && shape !== "template" ? (
        <p className="muted">{part === "output" ? "No output yet" : "None"}</p>
      ) : shape === "raw" ? (
        <pre className="code whole raw" tabIndex={0} aria-label="Raw value"><SafeText text={JSON.stringify(value, null, 2) ?? ""} most={RAW_MOST} /></pre>
      ) : (
        <JsonTree
          key={shape}
          value={shown}
          name={name}
          label={`${title ?? part} of ${name}`}
          root={shape === "tree" ? root : undefined}
          load={(keys, offset) => loadMore(run.run_id, path, part, keys, offset)}
          downloadUrl={(keys) => downloadUrl(run.run_id, path, part, keys)}
        />
      )}
    </section>
  );
}
