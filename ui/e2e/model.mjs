// A model on localhost that speaks OpenAI's chat completions: it says `texts` in turn, the last one for ever.
import { createServer } from "node:http";

export async function startModel(t, texts) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const text = texts[Math.min(requests.length, texts.length - 1)];
    requests.push({ path: request.url, body: JSON.parse(body) });
    const choices = [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: text } }];
    response.setHeader("Content-Type", "application/json");
    response.end(JSON.stringify({ choices, usage: { prompt_tokens: 100, completion_tokens: 20 } }));
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  t.after(() => (server.closeAllConnections(), new Promise((closed) => server.close(closed))));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, requests };
}
