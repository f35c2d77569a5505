// A real `segue` for one test: a folder, a configuration, a store and a port of its own.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
export const BIN = resolve(process.env.SEGUE_BIN ?? join(here, "..", "..", "target", "debug", "segue"));
export const NODE = process.execPath;
export const FIXTURES = join(here, "fixtures");
const START_MS = 60_000;

/** All text that a process has written, and a way to wait for some of it. */
class Output {
  text = "";
  #waiting = new Set();
  #ended = false;

  add(chunk) {
    this.text += chunk;
    for (const check of this.#waiting) check();
  }

  end(how = "") {
    this.#ended = true;
    this.text += how;
    for (const check of this.#waiting) check();
  }

  /** Resolves with the match of `pattern`, rejects when the process ends or time is up without it. */
  find(pattern, ms = START_MS) {
    return new Promise((found, failed) => {
      const fail = (why) => (done(), failed(new Error(`${why}: no ${pattern} in:\n${this.text}`)));
      const timer = setTimeout(() => fail("timeout"), ms);
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(check);
      };
      const check = () => {
        const match = pattern.exec(this.text);
        if (match) return done(), found(match);
        if (this.#ended) fail("the process ended");
      };
      this.#waiting.add(check);
      check();
    });
  }
}

/** A started command: `out` and `err` as they are written, `done` with its exit code. */
export function start(command, args, { cwd, env, stdin = "ignore" }) {
  const child = spawn(command, args, { cwd, env, stdio: [stdin, "pipe", "pipe"] });
  const out = new Output();
  const err = new Output();
  child.stdout.setEncoding("utf8").on("data", (chunk) => out.add(chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk) => err.add(chunk));
  const done = new Promise((resolve, reject) => {
    child.on("error", (error) => (err.end(String(error)), reject(error)));
    child.on("close", (code, signal) => (out.end(), err.end(`(ended with ${code ?? signal})`), resolve({ code, signal, out: out.text, err: err.text })));
  });
  done.catch(() => {});
  return { child, out, err, done };
}

/**
 * Starts `segue dev` in a new folder with `files` (path → text). `config` is the text of segue.yaml.
 * `env` adds variables.
 * Everything ends and goes away with the test `t`.
 */
export async function startSegue(t, { files = {}, config = "", env: more = {} } = {}) {
  const dir = mkdtempSync(join(tmpdir(), "segue-e2e-"));
  for (const [path, text] of Object.entries({ "segue.yaml": config, ...files })) {
    mkdirSync(dirname(join(dir, path)), { recursive: true });
    writeFileSync(join(dir, path), text);
  }
  const home = join(dir, ".home");
  mkdirSync(home);
  const env = { PATH: process.env.PATH, LANG: "C.UTF-8", HOME: home, XDG_DATA_HOME: join(home, "data"), XDG_CONFIG_HOME: join(home, "config"), NO_COLOR: "1", ...more };
  if (process.env.SEGUE_UI_DIR) env.SEGUE_UI_DIR = process.env.SEGUE_UI_DIR;
  const own = new Set();
  // The configuration is named, so its commands and servers are trusted.
  const cli = (args, options = {}) => {
    const process_ = start(BIN, ["--config", join(dir, "segue.yaml"), ...args], { cwd: dir, env: { ...env, ...options.env }, stdin: options.stdin });
    own.add(process_);
    return process_;
  };
  t.after(async () => {
    for (const { child } of own) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    await Promise.allSettled([...own].map((one) => one.done));
    rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
  });
  const server = cli(["dev", "--no-open", "--no-example", "--port", "0"]);
  const [, url, code] = await server.err.find(/sign in: (http:\/\/[^/\s]+)\/sign-in#(\S+)/);
  const [, token] = /token: (segue_\S+)/.exec(server.err.text) ?? [];
  return { url, link: `${url}/sign-in#${code}`, token, dir, env, cli, server, api: apiOf(url, token) };
}

/** The REST API with the administrator's token: for what a test prepares, never for what it shows. */
function apiOf(url, token) {
  return async (method, path, body) => {
    const answer = await fetch(`${url}/api/v1${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text.slice(0, 1000)}`);
    return text ? JSON.parse(text) : null;
  };
}

/** Runs a composition and waits for its end. */
export async function run(segue, name, args = []) {
  const { code, out, err } = await segue.cli(["run", name, "-o", "json", ...args]).done;
  const result = out.trim() ? JSON.parse(out) : null;
  if (!result?.run_id || !result.name) throw new Error(`segue run ${name} ended with ${code}: ${err}`);
  return result;
}

/** For hooks of a suite, which have no `t.after`: give it to `startSegue` and `launch`, and end it in `after`. */
export function ending() {
  const acts = [];
  return {
    after: (act) => acts.unshift(act),
    end: async () => {
      for (const act of acts) await act();
    },
  };
}
