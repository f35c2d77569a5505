// Compositions that several tests use.
import { join } from "node:path";
import { FIXTURES, NODE } from "./segue.mjs";

const yamlText = (value) => JSON.stringify(value);

export const AWKWARD = (args = [], more = "") => `
compositions: ["compositions/*.yaml"]
mcpServers:
  awkward: { command: ${yamlText(NODE)}, args: ${yamlText([join(FIXTURES, "mcp-server.mjs"), ...args])}${more} }
`;

export const CONFIG = `compositions: ["compositions/*.yaml"]\n`;

/** `n` steps one after the other, each of which takes `ms`. */
export function slow(name, n, ms) {
  const steps = Array.from({ length: n }, (_, i) => `  - { id: s${i}, tool: sleep, parameters: { ms: ${ms}, value: "value ${i}" }${i ? `, depends_on: s${i - 1}` : ""} }`);
  return `name: ${name}\ndescription: ${n} steps of ${ms} ms\nsteps:\n${steps.join("\n")}\n`;
}

export const HELLO = `name: hello
description: Greets by name
input: { type: object, properties: { name: { type: string, default: world } } }
steps:
  - { id: greeting, tool: echo, parameters: { text: "Hello, {{ input.name }}!" } }
  - { id: stats, tool: text_stats, parameters: { text: "{{ greeting.text }}" } }
output: { text: "{{ greeting.text }}", characters: "{{ stats.chars }}" }
`;

export const FAILS = `name: fails
steps:
  - { id: first, tool: echo, parameters: { text: one } }
  - { id: second, tool: fail, parameters: { message: "the printer is on fire" }, depends_on: first }
  - { id: third, tool: echo, parameters: { text: "{{ second.value }}" } }
`;

/** A question before the step, and a step behind it. */
export const ASKS = `name: asks
description: Asks before it goes on
steps:
  - { id: draft, tool: echo, parameters: { text: the draft } }
  - { id: ask, approve: { message: "publish the draft?" }, depends_on: draft }
  - { id: publish, tool: echo, parameters: { text: published }, depends_on: ask }
output: { text: "{{ publish.text }}" }
`;

export function loop(n) {
  return `name: loop
input: { type: object, properties: { n: { type: integer, default: ${n} } } }
steps:
  - id: each
    loop:
      over: "{{ range(input.n) | list }}"
      as: item
      steps:
        - { id: say, tool: echo, parameters: { number: "{{ item }}" } }
output: "{{ each | length }}"
`;
}

/** Layers of ten steps, each of which needs one step of the layer before. */
export function wide(n) {
  const steps = Array.from({ length: n }, (_, i) => `  - { id: s${i}, tool: echo, parameters: { i: ${i} }${i >= 10 ? `, depends_on: s${i - 10}` : ""} }`);
  return `name: wide\nsteps:\n${steps.join("\n")}\n`;
}
