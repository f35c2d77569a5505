// The TypeScript library as a host: lists, calls, and is asked. Usage: typescript_host.mjs SEGUE FOLDER
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SDK + "/");
const load = (path) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + path)));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { ElicitRequestSchema } = await load("types.js");

const [segue, folder] = process.argv.slice(2);
const args = ["--config", "segue.yaml", "--store", "memory", "mcp"];
const transport = new StdioClientTransport({ command: segue, args, cwd: folder, env: process.env, stderr: "inherit" });
const client = new Client({ name: "host", version: "1" }, { capabilities: { elicitation: {} } });
const questions = [];
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  questions.push(request.params.message);
  return { action: "accept", content: {} };
});
await client.connect(transport);
const { tools } = await client.listTools();
const called = await client.callTool({ name: "double_it", arguments: { n: 21 } });
const asked = await client.callTool({ name: "ask_first", arguments: {} });
await client.close();
const names = tools.map((tool) => tool.name);
console.log(JSON.stringify({ names, called: called.structuredContent, asked: asked.structuredContent, questions }));
