// Small MCP hosts that do not offer elicitation: one starts `segue mcp`, one talks HTTP to the server.
import { createInterface } from "node:readline";

const HELLO = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "a host without elicitation", version: "1" } };

export function mcpHost(segue) {
  const process_ = segue.cli(["mcp"], { stdin: "pipe" });
  const { child } = process_;
  const waiting = new Map();
  let id = 0;
  createInterface({ input: child.stdout }).on("line", (line) => {
    const message = JSON.parse(line);
    waiting.get(message.id)?.(message);
    waiting.delete(message.id);
  });
  const write = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  const request = (method, params) =>
    new Promise((resolve) => {
      waiting.set(++id, resolve);
      write({ id, method, params });
    });
  return {
    async initialize() {
      await request("initialize", HELLO);
      write({ method: "notifications/initialized" });
    },
    list: () => request("tools/list", {}),
    call: (name, args = {}) => request("tools/call", { name, arguments: args }),
  };
}

/** The same over HTTP, as the principal of a token. */
export async function mcpOverHttp(segue, token) {
  let session;
  let id = 0;
  const post = async (message) => {
    const answer = await fetch(`${segue.url}/mcp`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json", Accept: "application/json, text/event-stream", "MCP-Protocol-Version": HELLO.protocolVersion, ...(session ? { "Mcp-Session-Id": session } : {}) },
      body: JSON.stringify({ jsonrpc: "2.0", ...message }),
    });
    session ??= answer.headers.get("mcp-session-id") ?? undefined;
    const text = await answer.text();
    if (!answer.ok) throw new Error(`/mcp: ${answer.status} ${text}`);
    const lines = text.startsWith("{") ? [text] : text.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
    return lines.filter((line) => line.trim()).map((line) => JSON.parse(line)).find((one) => one.id === message.id);
  };
  await post({ id: ++id, method: "initialize", params: HELLO });
  await post({ method: "notifications/initialized" });
  return { call: (name, args = {}) => post({ id: ++id, method: "tools/call", params: { name, arguments: args } }) };
}
