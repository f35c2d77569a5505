// Starts the installed `segue lsp`, and runs its commands in a terminal.

import * as path from "node:path";
import * as vscode from "vscode";
import { LanguageClient, Trace, type LanguageClientOptions, type ServerOptions } from "vscode-languageclient/node";

import { LENS_COMMANDS, argumentsOf, requiredInputs } from "./commands";
import { drawingPage, problemPage } from "./preview";
import { NotStarted, check, run } from "./program";

const PLAN_TIMEOUT_MS = 60_000;

let client: LanguageClient | undefined;
let log: vscode.LogOutputChannel;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  log = vscode.window.createOutputChannel("Segue", { log: true });
  const previews = new Previews();
  const onFile = (command: string) => (file?: unknown, test?: unknown) => inTerminal(command, file, test);
  context.subscriptions.push(
    log,
    previews,
    vscode.commands.registerCommand("segue.run", onFile("segue.run")),
    vscode.commands.registerCommand("segue.dryRun", onFile("segue.dryRun")),
    vscode.commands.registerCommand("segue.test", onFile("segue.test")),
    vscode.commands.registerCommand("segue.preview", (file?: unknown) => previews.show(file)),
    vscode.commands.registerCommand("segue.trust", trust),
    vscode.commands.registerCommand("segue.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("segue.path") || event.affectsConfiguration("segue.arguments")) void restart();
    }),
    vscode.workspace.onDidSaveTextDocument((document) => previews.saved(document.uri.fsPath)),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await stop();
}

function settings() {
  const settings = vscode.workspace.getConfiguration("segue");
  return { program: settings.get("path", "segue"), args: settings.get<string[]>("arguments", []) };
}

async function start(): Promise<void> {
  const { program, args } = settings();
  try {
    await check(program);
  } catch (error) {
    await missing(error);
    return;
  }
  const server: ServerOptions = { command: program, args: ["lsp", ...args] };
  const selector = ["yaml", "json", "jsonc"].map((language) => ({ language }));
  const options: LanguageClientOptions = {
    documentSelector: selector,
    outputChannel: log,
    initializationOptions: { commands: LENS_COMMANDS },
  };
  client = new LanguageClient("segue", "Segue", server, options);
  await client.start();
  const trace = vscode.workspace.getConfiguration("segue").get("trace.server", "off");
  await client.setTrace(Trace.fromString(trace));
}

async function stop(): Promise<void> {
  const running = client;
  client = undefined;
  await running?.stop().catch((error: unknown) => log.warn(String(error)));
}

async function restart(): Promise<void> {
  await stop();
  await start();
}

/** Says what is wrong with the program, with the setting that corrects it. */
async function missing(error: unknown): Promise<void> {
  const message = error instanceof Error ? error.message : String(error);
  log.error(message);
  const open = "Open the Setting";
  const again = "Try Again";
  const chosen = await vscode.window.showErrorMessage(message, open, again);
  if (chosen === open) await vscode.commands.executeCommand("workbench.action.openSettings", "segue.path");
  if (chosen === again) await restart();
}

/** The file of a command: its argument, else the file in the editor, which is saved first. */
async function fileOf(argument: unknown): Promise<string | undefined> {
  const editor = vscode.window.activeTextEditor;
  const named = argument instanceof vscode.Uri ? argument.fsPath : argument;
  const file = typeof named === "string" ? named : editor?.document.uri.fsPath;
  const document = vscode.workspace.textDocuments.find((document) => document.uri.fsPath === file);
  if (file === undefined || document?.isUntitled) {
    await vscode.window.showErrorMessage("Save the composition first: Segue reads files.");
    return undefined;
  }
  if (document?.isDirty && !(await document.save())) return undefined;
  return file;
}

/** The folder whose configuration applies: the nearest one above with a `segue.yaml`. */
async function folderOf(file: string): Promise<string> {
  const root = vscode.workspace.getWorkspaceFolder(vscode.Uri.file(file))?.uri.fsPath;
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    for (const name of ["segue.yaml", "segue.yml", ".mcp.json"]) {
      const candidate = vscode.Uri.file(path.join(folder, name));
      if (await exists(candidate)) return folder;
    }
    if (folder === root || folder === path.dirname(folder)) return root ?? path.dirname(file);
  }
}

async function exists(uri: vscode.Uri): Promise<boolean> {
  return vscode.workspace.fs.stat(uri).then(
    () => true,
    () => false,
  );
}

/** Runs a command where a person sees it and can answer. No shell reads the arguments. */
async function inTerminal(command: string, argument: unknown, test: unknown): Promise<void> {
  const file = await fileOf(argument);
  if (file === undefined) return;
  const folder = await folderOf(file);
  const args = argumentsOf(command, file, typeof test === "string" ? test : undefined);
  if (command !== "segue.test") {
    const inputs = await askInputs(file, folder);
    if (inputs === undefined) return;
    args.push(...inputs);
  }
  await execute(command, args, folder);
}

async function execute(title: string, args: string[], folder: string): Promise<void> {
  const { program } = settings();
  const scope = vscode.workspace.getWorkspaceFolder(vscode.Uri.file(folder)) ?? vscode.TaskScope.Workspace;
  const execution = new vscode.ProcessExecution(program, args, { cwd: folder });
  const task = new vscode.Task({ type: "process", title }, scope, args.slice(0, 2).join(" "), "segue", execution, []);
  task.presentationOptions = { focus: true, panel: vscode.TaskPanelKind.Dedicated, clear: true };
  await vscode.tasks.executeTask(task);
}

/** Asks for the inputs that the composition must have; none when the person gives up. */
async function askInputs(file: string, folder: string): Promise<string[] | undefined> {
  let plan: unknown;
  try {
    const answer = await run(settings().program, ["plan", file, "--json"], folder, PLAN_TIMEOUT_MS);
    plan = JSON.parse(answer.stdout);
  } catch (error) {
    if (error instanceof NotStarted) {
      await missing(error);
      return undefined;
    }
    // The command itself says in the terminal what is wrong.
    return [];
  }
  const args: string[] = [];
  for (const input of requiredInputs(plan)) {
    const prompt = input.description || `A value of type ${input.type}`;
    const options = { title: `Input ${input.name}`, prompt, ignoreFocusOut: true };
    const value = await vscode.window.showInputBox(options);
    if (value === undefined) return undefined;
    args.push("-i", `${input.name}=${value}`);
  }
  return args;
}

/** Shows what the configuration grants, and trusts it, in a terminal. */
async function trust(): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  const first = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const folder = editor?.document.uri.scheme === "file" ? await folderOf(editor.document.uri.fsPath) : first;
  if (folder === undefined) return;
  const yes = "Trust";
  const question = `Trust the Segue configuration of ${folder}? Its commands and MCP servers may then start.`;
  const detail = "Read `segue.yaml` and `.mcp.json` before.";
  const chosen = await vscode.window.showWarningMessage(question, { modal: true, detail }, yes);
  if (chosen === yes) await execute("segue.trust", ["trust"], folder);
}

/** The graphs that are shown, by file. They are drawn anew when the file is saved. */
class Previews implements vscode.Disposable {
  private readonly panels = new Map<string, vscode.WebviewPanel>();

  async show(argument: unknown): Promise<void> {
    const file = await fileOf(argument);
    if (file === undefined) return;
    let panel = this.panels.get(file);
    if (panel === undefined) {
      const options = { enableScripts: false, localResourceRoots: [] };
      const title = `Graph of ${path.basename(file)}`;
      panel = vscode.window.createWebviewPanel("segue.graph", title, vscode.ViewColumn.Beside, options);
      panel.onDidDispose(() => this.panels.delete(file));
      this.panels.set(file, panel);
    }
    panel.reveal(undefined, true);
    await this.draw(file, panel);
  }

  saved(file: string): void {
    const panel = this.panels.get(file);
    if (panel !== undefined) void this.draw(file, panel);
  }

  private async draw(file: string, panel: vscode.WebviewPanel): Promise<void> {
    const title = path.basename(file);
    try {
      const { program } = settings();
      const answer = await run(program, argumentsOf("segue.preview", file), await folderOf(file), PLAN_TIMEOUT_MS);
      const page = answer.code === 0 ? drawingPage(title, answer.stdout) : problemPage(title, answer.stderr);
      panel.webview.html = page;
    } catch (error) {
      if (error instanceof NotStarted) void missing(error);
      panel.webview.html = problemPage(title, error instanceof Error ? error.message : String(error));
    }
  }

  dispose(): void {
    for (const panel of [...this.panels.values()]) panel.dispose();
  }
}
