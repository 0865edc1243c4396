// The actions of every pipeline rank in one step, in order, and when each can run.
const FOLDED = ["zbv", "dualpipev"];

// The chunks in the order of their forward passes: each group of micro-batches goes through all chunks.
function grouped(m, V, group) {
  const chunks = [];
  for (let start = 0; start < m; start += group)
    for (let chunk = 0; chunk < V; chunk++) chunks.push(...Array(Math.min(group, m - start)).fill(chunk));
  return chunks;
}

// Forward passes run ahead, then one of each; weights follow inputs some steps later, or at once.
function alternate(m, V, group, ahead, delay) {
  const forward = grouped(m, V, group);
  const steps = forward.slice(0, ahead).map((chunk) => ["F", chunk]);
  const waiting = [];
  for (const [place, passed] of forward.entries()) {
    if (ahead + place < forward.length) steps.push(["F", forward[ahead + place]]);
    const chunk = V - 1 - passed;
    steps.push([delay === null ? "B" : "I", chunk]);
    if (delay !== null) waiting.push(chunk);
    if (delay !== null && waiting.length > delay) steps.push(["W", waiting.shift()]);
  }
  return [...steps, ...waiting.map((chunk) => ["W", chunk])];
}

const repeated = (times, ...names) => Array.from({ length: Math.max(0, times) }, () =>
  names.map((name) => [name[0], Number(name[1])])).flat();

// The steps of a rank without their micro-batches, as `symbolic/parallel/walk.py` has them.
const PASSES = {
  "1f1b": (p, m, V, group, rank) => alternate(m, V, group, V > 1 ? (V - 1) * group + 2 * (p - 1 - rank) : p - 1 - rank, null),
  zero_bubble: (p, m, V, group, rank) => alternate(m, V, group, (V - 1) * group + p - 1 - rank, rank),
  gpipe: (p, m, V) => {
    const chunks = Array.from({ length: V }, (_, chunk) => Array(m).fill(chunk)).flat();
    return [...chunks.map((chunk) => ["F", chunk]), ...chunks.reverse().map((chunk) => ["B", chunk])];
  },
  zbv: (p, m, V, group, rank) => {
    const [up, full] = [p - rank, Math.max(m, 2 * p - 1)];
    return [
      ...repeated(2 * up - 1, "F0"), ...repeated(rank, "F1", "F0"), ...repeated(up, "F1", "I1", "W1"),
      ...repeated(full - 2 * p + rank + 1, "F0", "I0", "W0", "F1", "I1", "W1"),
      ...repeated(up - 1, "I0", "W0", "F1", "I1", "W1"), ...repeated(rank, "I0", "I1"), ...repeated(up, "I0", "W0"),
      ...repeated(rank, "W1"), ...repeated(rank, "W0"),
    ];
  },
  dualpipev: (p, m, V, group, rank) => {
    const hops = p - 1 - rank;
    const last = Array(rank + 1).fill([1, 0]).flat();
    const halved = [...last.slice(rank + 1), ...Array(hops).fill(0)];
    const [inputs, weights] = ["I", "W"].map((kind) => halved.map((chunk) => [kind, chunk]));
    return [
      ...repeated(2 * hops, "F0"), ...repeated(rank + 1, "F0", "F1"), ...repeated(hops, "I1", "W1", "F1"),
      ...repeated(m - 2 * p + rank + 1, "F0", "B1", "F1", "B0"), ...repeated(hops, "B1", "F1", "B0"),
      ...last.slice(0, rank + 1).map((chunk) => ["B", chunk]), ...inputs.slice(0, rank + 1),
      ...weights.slice(0, hops).flatMap((weight, place) => [weight, inputs[rank + 1 + place]]), ...weights.slice(hops),
    ];
  },
};
PASSES.interleaved = PASSES["1f1b"];

// Actions of a rank: kind, chunk and micro-batch; F and B are passes, I and W the halves of a backward pass.
function actionsOf(schedule, p, m, V, group, rank) {
  const done = {};
  const actions = [];
  for (const [kind, chunk] of PASSES[schedule](p, m, V, group, rank)) {
    const halves = kind === "B" ? ["I", "W"] : [kind];
    const microbatch = done[halves[0] + chunk] ?? 0;
    for (const half of halves) done[half + chunk] = (done[half + chunk] ?? 0) + 1;
    if (microbatch < m) actions.push({ kind, chunk, microbatch });
  }
  const turned = schedule === "gpipe" && V > 1; // breadth first: the last micro-batch comes back first
  return actions.map((action) => (turned && action.kind !== "F" ? { ...action, microbatch: m - 1 - action.microbatch } : action));
}

// The stage, from 0 for the first layers, that is a rank's chunk.
function stageOf(schedule, p, rank, chunk) {
  return FOLDED.includes(schedule) && chunk ? 2 * p - 1 - rank : chunk * p + rank;
}

// Start and end of every action, by rank, where each runs as soon as the one before it on its rank, and its input, are there.
// `lasts` gives the seconds of an action.
function placed(schedule, p, m, V, group, lasts) {
  const ranks = Array.from({ length: p }, (_, rank) => actionsOf(schedule, p, m, V, group, rank));
  const [next, free, ends] = [Array(p).fill(0), Array(p).fill(0), new Map()];
  const last = p * V - 1;
  const key = (kind, stage, microbatch) => `${kind}.${stage}.${microbatch}`;
  const inputOf = (kind, stage, microbatch) => {
    if (kind === "W") return ends.get(key("I", stage, microbatch));
    if (kind === "F") return stage === 0 ? 0 : ends.get(key("F", stage - 1, microbatch));
    return stage === last ? ends.get(key("F", stage, microbatch)) : ends.get(key("I", stage + 1, microbatch));
  };
  for (let moved = true; moved;) {
    moved = false;
    for (let rank = 0; rank < p; rank++)
      for (; next[rank] < ranks[rank].length; next[rank]++) {
        const action = ranks[rank][next[rank]];
        const stage = stageOf(schedule, p, rank, action.chunk);
        const input = inputOf(action.kind, stage, action.microbatch);
        if (input === undefined) break;
        action.start = Math.max(free[rank], input);
        action.end = free[rank] = action.start + lasts(rank, action.kind);
        ends.set(key(action.kind === "B" ? "I" : action.kind, stage, action.microbatch), action.end);
        moved = true;
      }
  }
  return ranks;
}

// Chunks in flight after each action: from their forward pass to the end of their backward pass.
function inFlight(actions) {
  let now = 0;
  return actions.map(({ kind }) => (now += kind === "F" ? 1 : kind === "I" ? 0 : -1));
}
