// Compositions, tools, servers, templates, plans, settings. Screens add what they need here.
import { templatesAndPlans } from "./proposals.mjs";

import { compositions } from "./compositions.mjs";
import { servers, tools } from "./tools.mjs";

const ok = (body, status = 200) => ({ status, body });

export function others(method, path, query, body, plans) {
  const proposed = templatesAndPlans(method, path, query, body, plans);
  if (proposed) return proposed;
  const composed = compositions(method, path, body, plans);
  if (composed) return ok(composed);
  if (path === "tools") return ok({ tools });
  const tool = tools.find((one) => path === `tools/${encodeURIComponent(one.id)}` || path === `tools/${one.id}`);
  if (tool) return ok(tool);
  if (path === "servers") return ok({ servers });
  if (path === "doctor") return ok({ ok: false, findings: [{ what: "store", ok: true, message: "writable", help: null }, { what: "slack", ok: false, message: "SLACK_TOKEN is not set", help: "set SLACK_TOKEN and restart" }] });
  if (path === "settings") return ok({ file: "segue.yaml", trusted: true, settings: [{ name: "server.port", value: 7433, from: "segue.yaml:3" }, { name: "limits.steps_max", value: 20000, from: "default" }] });
  return null;
}
