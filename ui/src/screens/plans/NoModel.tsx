import { CopyButton } from "@/parts/Copy";

const EXAMPLE = `llm:
  provider: openai      # or anthropic
  base_url: http://127.0.0.1:11434/v1   # a local server, or leave it out
  model: qwen3:14b
  api_key: \${MODEL_KEY:-}
`;

/** Shown instead of an error when the server has no model to ask. */
export function NoModel() {
  return (
    <section className="nomodel" role="alert">
      <h2>No model is configured</h2>
      <p>Name one in <code>segue.yaml</code> and restart the server:</p>
      <div className="snippet">
        <pre className="code grow" tabIndex={0} aria-label="Example of the configuration">{EXAMPLE}</pre>
        <CopyButton text={EXAMPLE} label="Copy the example" />
      </div>
      <p className="muted">Write the key as <code>{"${VARIABLE}"}</code>, so that it is in the environment and not in the file. Segue sends it to that address and nowhere else.</p>
    </section>
  );
}
