// Templates, and plans that a model proposed. Words with "no model" get the answer of a server without one.
const ok = (body, status = 200) => ({ status, body });

const META = [["automation", 31, 0.94], ["analysis", 4, 1], ["automation", 0, null], ["research", 12, 0.5]];
const templateOf = (plan, i) => {
  const [category, usage_count, success_rate] = META[i % META.length];
  return {
    id: `${plan.name}-v1`, name: plan.name, description: plan.description,
    metadata: { category, tags: ["example", category], estimated_duration_ms: usage_count ? 4200 : null, success_rate, usage_count },
    validation: { required_tools: i % 2 ? ["web:get", "calendar:create"] : [], min_version: null }, origin: ["shipped", "file", "store"][i % 3],
  };
};

const stored = new Map();
function propose(query, plan, state = "pending", version = 1) {
  const n = stored.size + 1;
  const details = {
    request_id: `req_1704123456_${n}`, plan_id: `plan_1704123456_${n}`, version, query, state, created_at: new Date(Date.now() - n * 3_600_000).toISOString(),
    origin: { model: { model: "small-1", rounds: 1, usage: { input_tokens: 2000, output_tokens: 340 }, tools_shown: 13, tools: 13 } }, run_id: null,
    warnings: state === "pending" ? ["The words do not say which channel: the model chose “general”."] : [], plan: { tasks: [] }, versions: [`plan_1704123456_${n}`], checked: plan, result: null, used_before: [],
  };
  stored.set(details.plan_id, details);
  return details;
}

const noModel = { status: 502, body: { type: "urn:segue:error:llm", title: "The model gave no plan", status: 502, detail: "no model is configured to plan with", code: "llm", help: "name one in `segue.yaml`" } };

export function templatesAndPlans(method, path, query, body, plans) {
  const all = Object.values(plans);
  if (stored.size === 0) {
    propose("Publish the release notes of this week", all[0]);
    propose("Delete branches that were merged", all[1] ?? all[0], "completed");
    propose("Send a greeting to everybody", all[2] ?? all[0], "failed");
  }
  const templates = all.map(templateOf);
  if (path === "compositions/templates") {
    const words = (query.get("search") ?? "").toLowerCase();
    return ok({ templates: templates.filter((one) => `${one.id} ${one.description}`.toLowerCase().includes(words)) });
  }
  const template = templates.findIndex((one) => path === `compositions/templates/${one.id}`);
  if (template >= 0) return ok({ ...templates[template], composition: { name: all[template].name, steps: all[template].steps.slice(0, 20).map(({ id, tool }) => ({ id, tool })) } });
  if (path === "plans/ask") return /no model/.test(body.query) ? noModel : ok(propose(body.query, all[0]), 201);
  if (path === "plans" && method === "POST") return ok(all.find((plan) => `${plan.name}-v1` === body.template_id) ?? all[0]);
  if (path === "plans") return ok({ plans: [...stored.values()].filter((one) => !query.get("state") || one.state === query.get("state")), next: null });
  const [, id, rest] = /^plans\/([^/]+)(?:\/(.*))?$/.exec(path) ?? [];
  const plan = stored.get(id);
  if (!plan) return null;
  if (rest === "composition") return ok(`name: ${plan.checked.name}\nsteps: []\n`);
  if (method === "DELETE") return stored.delete(id), ok(null, 204);
  return ok(plan);
}
