// What the commands run in a terminal. Nothing here knows the editor, so that tests can call it.

/** The commands that the extension has; the language server shows code lenses for these only. */
export const LENS_COMMANDS = ["segue.run", "segue.dryRun", "segue.test", "segue.preview"];

/** The arguments of `segue` for a command about a file; of a test also its name. */
export function argumentsOf(command: string, file: string, test?: string): string[] {
  switch (command) {
    case "segue.run":
      return ["run", file];
    case "segue.dryRun":
      return ["run", file, "--dry-run"];
    case "segue.test":
      return test === undefined ? ["test", file] : ["test", file, "--filter", test];
    case "segue.preview":
      return ["plan", file, "--format", "svg"];
    default:
      throw new Error(`there is no command ${command}`);
  }
}

/** An input of a composition that has no default. */
export interface RequiredInput {
  name: string;
  type: string;
  description: string;
}

/** The inputs that a run must have, from the view of a plan (`segue plan --json`). */
export function requiredInputs(plan: unknown): RequiredInput[] {
  const input = member(plan, "inputs");
  const required = member(input, "required");
  const properties = member(input, "properties");
  if (!Array.isArray(required)) return [];
  return required
    .filter((name): name is string => typeof name === "string")
    .map((name) => {
      const schema = member(properties, name);
      const type = member(schema, "type");
      const description = member(schema, "description");
      return {
        name,
        type: typeof type === "string" ? type : "any",
        description: typeof description === "string" ? description : "",
      };
    });
}

function member(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}
