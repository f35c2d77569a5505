// What dev/look.mjs opens. A screen adds its own lines.
export async function screens(base) {
  const { runs } = await (await fetch(`${base}/api/v1/runs?limit=100`)).json();
  const find = (name, status, more = () => true) => runs.find((run) => run.name === name && run.status === status && more(run))?.run_id ?? "none";
  const release = find("release-notes", "rolled_back");
  const live = find("nightly-export", "running");
  return [
    { name: "runs", path: "/" },
    { name: "runs-failed", path: "/?failed=true" },
    { name: "runs-none", path: "/?q=nothing-has-this" },
    { name: "palette", path: "/", act: (page) => page.keyboard.press("Control+k").then(() => page.waitForTimeout(400)) },
    { name: "sheet", path: "/", act: (page) => page.keyboard.press("?").then(() => page.waitForTimeout(400)) },
    { name: "run", path: `/runs/${release}?step=release` },
    { name: "run-failed", path: `/runs/${release}?step=assets` },
    { name: "run-loop", path: `/runs/${release}?step=summaries` },
    { name: "run-item", path: `/runs/${release}?step=summaries[7]/files` },
    { name: "run-live", path: `/runs/${live}?step=tables` },
    { name: "timeline", path: `/runs/${release}?view=timeline&step=release` },
    { name: "outline", path: `/runs/${release}?view=outline&step=release` },
    { name: "run-interrupted", path: `/runs/${runs.find((run) => run.interrupted)?.run_id}` },
    { name: "run-waiting", path: `/runs/${find("branch-cleanup", "waiting")}?step=delete` },
    { name: "run-nested", path: `/runs/${find("triage-issue", "success")}?step=greeting` },
    { name: "run-thousand", path: `/runs/${find("thousand-steps", "success")}?step=s0` },
    ...(await inbox(base)),
    { name: "tools", path: "/tools" },
    { name: "tool", path: "/tools?tool=filesystem:edit_file", act: async (page) => (await page.getByLabel("path", { exact: true }).fill("docs/serving.md"), await page.getByLabel("oldText", { exact: true }).fill("The web interface."), await page.getByLabel("newText", { exact: true }).fill("HTTP/2."), await page.keyboard.press("Control+Enter"), await page.waitForTimeout(400)) },
    { name: "tool-running", path: "/tools?tool=web:get", act: async (page) => (await page.getByLabel("repo", { exact: true }).fill("a"), await page.getByRole("button", { name: "Call the tool" }).click(), await page.waitForTimeout(1500)) },
    { name: "tool-schema", path: "/tools?tool=search:query&tab=schema" },
    { name: "tool-hostile", path: `/tools?tool=${encodeURIComponent("evil:<img src=x>\u202Etxt.exe")}` },
    { name: "tools-server", path: "/tools?server=slack" },
    { name: "compositions", path: "/compositions" },
    { name: "composition", path: "/compositions/release-notes?step=tag" },
    { name: "composition-plan", path: "/compositions/release-notes?view=plan&step=summaries/files" },
    { name: "composition-run", path: "/compositions/triage-issue?view=run", act: (page) => page.getByRole("button", { name: "Run all tests" }).click() },
    { name: "composition-dry", path: "/compositions/hello?view=run", act: async (page) => (await page.getByLabel("repo", { exact: true }).fill("acme/site"), await page.getByRole("button", { name: "Dry run" }).click(), await page.waitForTimeout(300), await page.locator(".dry summary").first().click()) },
    { name: "builder", path: "/edit?file=compositions/weekly-digest.yaml&step=release" },
    { name: "builder-finding", path: "/edit?file=compositions/weekly-digest.yaml", act: (page) => page.keyboard.press("F8").then(() => page.waitForTimeout(500)) },
    { name: "builder-outline", path: "/edit?file=compositions/weekly-digest.yaml", act: (page) => page.keyboard.press("2").then(() => page.waitForTimeout(300)) },
    { name: "builder-place", path: "/edit?file=compositions/weekly-digest.yaml&step=each", act: async (page) => (await page.keyboard.press("n"), await page.keyboard.type("list_files"), await page.keyboard.press("Enter"), await page.waitForTimeout(300)) },
    { name: "builder-menu", path: "/edit?file=compositions/weekly-digest.yaml&step=release", act: (page) => page.keyboard.press("Shift+F10").then(() => page.waitForTimeout(300)) },
    { name: "builder-removed", path: "/edit?file=compositions/weekly-digest.yaml&step=announce", act: (page) => page.keyboard.press("Delete").then(() => page.waitForTimeout(600)) },
    { name: "builder-new", path: "/edit" },
    { name: "compare", path: `/compare?left=${release}&right=${find("release-notes", "rollback_failed")}` },
    { name: "templates", path: "/templates" },
    { name: "template-plan", path: "/templates?pane=plan" },
    { name: "plans", path: "/plans" },
    { name: "plans-proposal", path: "/plans?plan=plan_1704123456_1" },
    { name: "plans-no-model", path: "/plans", act: async (page) => { await page.fill("#ask-words", "no model"); await page.keyboard.press("Control+Enter"); } },
    { name: "settings", path: "/settings" },
  ];
}

async function inbox(base) {
  const { questions } = await (await fetch(`${base}/api/v1/questions`)).json();
  const path = (kind, step) => {
    const one = questions.find((other) => other.question.kind === kind && (!step || other.question.step === step));
    return `/inbox?question=${encodeURIComponent(`${one?.run_id} ${one?.question.step}`)}`;
  };
  return [
    { name: "inbox-call", path: path("call", "delete") },
    { name: "inbox-hostile", path: path("call", "store") },
    { name: "inbox-run", path: path("run") },
    { name: "inbox-data", path: path("approval", "words"), act: (page) => page.keyboard.press("a").then(() => page.keyboard.press("Enter")) },
    { name: "inbox-doubt", path: path("doubt") },
    { name: "inbox-gone", path: "/inbox?question=none%20none" },
  ];
}
