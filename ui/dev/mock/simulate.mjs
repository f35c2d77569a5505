// Simulates a run of a plan: every step gets its times and its final state; the view of a run at a given
// moment follows from these, so a live run needs no bookkeeping.

/** A small deterministic generator. */
export function random(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const rounded = (ms) => Math.max(1, Math.round(ms));

/**
 * options: seed, t0, items(path) → number of loop items, take(path) → index of the taken branch,
 * fail: { [path]: {message, code, attempts, tolerated} }, slow: factor, wait: { [path]: question }.
 */
export function simulate(plan, options) {
  const next = random(options.seed ?? 1);
  const steps = [];
  const state = { stopAt: Infinity, failed: null };
  const end = body(plan.steps, "", options.t0);
  const ends = steps.map((s) => s.end).filter(Number.isFinite);
  return { steps, end: Number.isFinite(end) ? end : Math.max(...ends, options.t0), open: !Number.isFinite(end), failed: state.failed };

  function body(list, prefix, from, inItem) {
    const ends = new Map();
    let last = from;
    let broken = false;
    for (const step of list) {
      const path = prefix + step.id;
      const needs = (step.needs ?? []).map((id) => ends.get(id) ?? { at: from, ok: true });
      const start = Math.max(from, ...needs.map((n) => n.at));
      const dead = needs.find((n) => !n.ok);
      let result;
      if (dead || (Number.isFinite(start) && start >= state.stopAt)) result = skip(step, path, dead ? `\`${dead.by}\` failed` : "the run stopped");
      else if (!Number.isFinite(start)) result = pend(step, path);
      else result = one(step, path, start);
      ends.set(step.id, result);
      if (!result.ok && !result.skipped) {
        broken = true;
        if (!inItem && !result.tolerated) state.stopAt = Math.min(state.stopAt, result.at);
      }
      last = Math.max(last, result.at);
    }
    return inItem ? { at: last, ok: !broken } : last;
  }

  function push(step, path, start, end, final, more = {}) {
    const record = { path, plan: step, start, end, final, attempts: [], reason: null, error: null, ...more };
    steps.push(record);
    return record;
  }
  function skip(step, path, reason) {
    push(step, path, null, null, "skipped", { reason });
    return { at: -Infinity, ok: false, skipped: true, by: step.id };
  }
  function pend(step, path) {
    push(step, path, null, null, "pending");
    return { at: Infinity, ok: true };
  }

  function one(step, path, start) {
    if (step.kind === "loop") return aLoop(step, path, start);
    if (step.kind === "choose") return aChoose(step, path, start);
    if (step.bodies?.length) return inside(step, path, start);
    return call(step, path, start);
  }

  function call(step, path, start) {
    const failure = options.fail?.[path];
    const record = push(step, path, start, null, "success");
    if (options.wait?.[path]) {
      record.final = "running";
      record.end = Infinity;
      record.waiting = options.wait[path];
      return { at: Infinity, ok: true };
    }
    if (options.hangAt === path) {
      record.final = options.doubt ? "in_doubt" : "running";
      record.end = options.doubt ? start + 900 : Infinity;
      record.attempts.push({ start, end: record.end, ok: null });
      return { at: Infinity, ok: true };
    }
    let at = start + (step.needs?.length > 1 ? 40 : 0);
    const tries = failure?.attempts ?? (next() < 0.06 && step.tool?.startsWith("github") ? 2 : 1);
    for (let i = 0; i < tries; i++) {
      const took = rounded((80 + next() * 900) * (options.slow ?? 1));
      const ok = !failure && i === tries - 1;
      const attempt = { start: at, end: at + took, ok, pause: null, error: ok ? null : failure?.message ?? "502 from github: bad gateway" };
      at += took;
      if (i < tries - 1) {
        attempt.pause = rounded(400 * 2 ** i * (options.slow ?? 1));
        at += attempt.pause;
      }
      record.attempts.push(attempt);
    }
    record.end = at;
    if (!failure) return { at, ok: true };
    record.final = "failed";
    record.error = { step: path, tool: step.tool, code: failure.code ?? "tool-error", message: failure.message, attempts: tries, phase: "call", retryable: tries > 1, in_doubt: false, hint: failure.hint ?? null };
    state.failed ??= failure.tolerated ? null : record;
    return { at, ok: false, tolerated: failure.tolerated, by: step.id };
  }

  function aLoop(step, path, start) {
    const count = options.items?.(path) ?? 5;
    const record = push(step, path, start, null, "success", { items: count });
    const lanes = Array.from({ length: 4 }, () => start + 5);
    let failed = 0;
    for (let i = 0; i < count; i++) {
      const lane = lanes.indexOf(Math.min(...lanes));
      if (!Number.isFinite(lanes[lane])) break;
      const result = body(step.bodies[0].steps, `${path}[${i}]/`, lanes[lane], true);
      if (!result.ok) failed++;
      lanes[lane] = result.at;
    }
    record.end = Math.max(...lanes) + 5;
    record.failedItems = failed;
    return { at: record.end, ok: true };
  }

  function aChoose(step, path, start) {
    const taken = options.take?.(path) ?? step.bodies.length - 1;
    const record = push(step, path, start, null, "success", { taken });
    let end = start + 2;
    step.bodies.forEach((branch, i) => {
      if (i === taken) end = body(branch.steps, `${path}/`, start + 2);
      else for (const inner of branch.steps) skip(inner, `${path}/${inner.id}`, "another branch was taken");
    });
    record.end = end;
    return { at: end, ok: true };
  }

  function inside(step, path, start) {
    const record = push(step, path, start, null, "success");
    const ends = step.bodies.map((branch) => body(branch.steps, `${path}/`, start + 2));
    record.end = Math.max(...ends) + 2;
    return { at: record.end, ok: true };
  }
}

/** Adds the rollback of completed steps that write, in reverse order of completion. */
export function rollBack(sim, slow = 1, brokenAt = null) {
  const failure = sim.failed;
  const done = sim.steps.filter((s) => s.final === "success" && s.plan.tool && ["writes", "destroys", "unknown"].includes(s.plan.effect)).sort((a, b) => b.end - a.end);
  let at = failure.end;
  const rail = [];
  for (const step of done) {
    const kind = step.plan.rollback.kind;
    if (kind !== "call") {
      rail.push({ step, start: null, end: null, final: "impossible" });
      continue;
    }
    const took = rounded(1200 * slow);
    const ok = brokenAt !== step.path;
    rail.push({ step, start: at, end: at + took, final: ok ? "done" : "failed" });
    step.rollback = { start: at, end: at + took, ok, order: rail.length };
    at += took;
  }
  sim.rail = rail;
  sim.end = at;
  return sim;
}
