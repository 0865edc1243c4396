// Memory over one step: what is allocated and freed, in the order of the schedule, as `src/shardmath/steps` replays it.
const IN_LAYER = ["LAYER", "DENSE"];
const LASTING = ["weight", "gradient", "optimizer", "input", "buffer"];

// Why no timeline is drawn; empty where it is.
function untraced(state, values) {
  const { replay } = DATA.evaluators[evaluatorName(state)];
  const uneven = ["first_stage_layers", "last_stage_layers", "account_for_embedding", "account_for_loss"];
  if (typeof replay === "string") return replay;
  if (uneven.some((name) => values[name])) return "stages must be even: steps of others are not replayed yet";
  return "";
}

// Rows of a rank at the values of its parameters: bytes of single tensors, of weights elements.
class Rows {
  constructor(evaluator, replay, values, account) {
    Object.assign(this, { values, account, replay });
    this.sizes = Object.fromEntries(Object.entries(evaluator.rows(values, account)).map(([name, size]) => [name, Math.ceil(size)]));
    this.every = Object.entries(replay.rows).map(([name, [component, place, role, lifetime, module, moments, ofLayer]]) =>
      ({ name, size: this.sizes[name], component, place, role, lifetime, module, moments, ofLayer }))
      .filter(({ size }) => size);
    this.layers = account.stage_layers ?? values.num_layers;
  }

  instances({ place }) {
    if (IN_LAYER.includes(place)) return this.layers;
    const { pipeline_rank, pipeline_parallel } = this.values;
    return { FIRST: Number(pipeline_rank === 0), LAST: Number(pipeline_rank === pipeline_parallel - 1) }[place] ?? 1;
  }

  // Tensors that one instance saves for the backward pass, in the order of the ledger.
  saved(places, recomputed = Boolean(this.values.recompute_full)) {
    return this.every.filter((row) => row.role === "activation" && places.includes(row.place)
      && row.lifetime !== "SHARED" && !row.moments.length && (!IN_LAYER.includes(row.place) || row.ofLayer === recomputed));
  }

  // Bytes of what exists at a moment alone, by name: rows, and sums that no walk meets otherwise.
  transients(moment) {
    const parts = new Map();
    for (const row of this.every) {
      const many = IN_LAYER.includes(row.place) ? 1 : this.instances(row);
      if (row.moments.includes(moment) && many) parts.set(row.name, many * row.size);
    }
    for (const [name, [when, walked]] of Object.entries(this.replay.sums))
      if (when === moment && !walked && this.account[name]) parts.set(name, Math.ceil(this.account[name]));
    return parts;
  }
}

class Trace {
  now = {};
  total = 0;
  points = [];

  allocate(series, size) {
    this.now[series] = (this.now[series] ?? 0) + size;
    this.total += size;
    if (this.total > this.most) [this.most, this.snapshot] = [this.total, { ...this.now }];
    return [series, size];
  }

  free([series, size]) {
    this.now[series] -= size;
    this.total -= size;
  }

  // Begin an action: its point is the moment of it at which most is in use.
  begin() {
    [this.most, this.snapshot] = [this.total, { ...this.now }];
  }

  end(action) {
    this.points.push({ ...action, peak: this.most, at: this.snapshot, after: { ...this.now }, total: this.total });
  }
}

class Step {
  constructor(rows, schedule, group) {
    this.rows = rows;
    this.trace = new Trace();
    this.schedule = schedule;
    this.group = group;
    this.chunks = schedule === "1f1b" ? 1 : rows.values.virtual_pipeline;
    this.moments = Object.fromEntries(Object.keys(rows.replay.scripts).map((name) => [name, rows.transients(name)]));
    this.passing = new Map();
    this.parts = { embedding: rows.saved(["FIRST"]), layer: rows.saved(IN_LAYER), last: rows.saved(["LAST"]) };
    this.recomputed = rows.saved(IN_LAYER, false);
    this.gradients = Map.groupBy(rows.every.filter(({ role }) => role === "weight"), ({ component }) => component);
    const roles = Object.fromEntries(LASTING.map((role) => [role, rows.account[`stage.${role}`] ?? 0]));
    const lasting = Object.values(roles).reduce((sum, size) => sum + size, 0);
    if (lasting !== rows.account["stage.static"]) roles.gradient = 0; // made by each backward pass
    for (const [role, size] of Object.entries(roles)) this.trace.allocate(role, size);
  }

  // Micro-batches that are walked through; the others only repeat.
  walked(microbatches) {
    const { pipeline_parallel, pipeline_rank } = this.rows.values;
    if (this.schedule === "gpipe") return microbatches;
    if (this.chunks === 1) return Math.min(microbatches, pipeline_parallel - pipeline_rank + 2);
    return microbatches <= 3 * this.group ? microbatches : 2 * this.group + (microbatches % this.group);
  }

  run(microbatches) {
    const { rows, trace } = this;
    const { pipeline_parallel: p, pipeline_rank: rank } = rows.values;
    const shared = rows.every.filter((row) => row.role === "activation" && row.lifetime === "SHARED" && rows.instances(row))
      .map((row) => trace.allocate(row.component, row.size));
    const flying = new Map();
    const walked = this.walked(microbatches);
    for (const action of actionsOf(this.schedule, p, walked, this.chunks, this.group, rank)) {
      const { kind, chunk, microbatch } = action;
      const [isFirst, isLast] = [rank === 0 && chunk === 0, rank === p - 1 && chunk === this.chunks - 1];
      const name = `${chunk}.${microbatch}`;
      trace.begin();
      if (kind === "F") flying.set(name, this.forward(isFirst, isLast));
      else this.backward(flying.get(name), isFirst, isLast);
      trace.end(action);
    }
    trace.begin();
    shared.forEach((tensor) => trace.free(tensor));
    this.at("last_reduce");
    this.at("optimizer_step");
    trace.end({ kind: "optimizer" });
    return { points: trace.points, walked };
  }

  forward(isFirst, isLast) {
    const [embedding, head, loss] = [new Map(), new Map(), new Map()];
    this.at("chunk_forward", [], new Map(), !isFirst);
    if (isFirst) this.at("embedding_forward", this.parts.embedding, embedding, true);
    const layers = Array.from({ length: Math.floor(this.rows.layers / this.chunks) }, () => {
      const saved = new Map();
      this.at("layer_forward", this.parts.layer, saved, true);
      return saved;
    });
    const last = isLast ? this.parts.last : [];
    this.at("head_forward", last.filter(({ component }) => component !== "loss"), head, isLast);
    this.at("loss_forward", last.filter(({ component }) => component === "loss"), loss, isLast);
    this.at("after_forward", [], new Map(), !isLast);
    return { embedding, layers, head, loss };
  }

  backward({ embedding, layers, head, loss }, isFirst, isLast) {
    this.at("backward_start");
    this.at("loss_backward", [], loss, isLast);
    this.at("head_backward", [], head, isLast);
    this.at("head_reduce");
    this.at("stage_exchange", [], new Map(), !isLast);
    for (const layer of layers.reverse()) this.at("layer_backward", [], layer, true);
    this.at("embedding_backward", [], embedding, isFirst);
    this.at("backward_end");
  }

  // The script of a point: what is saved and freed there, by row or component, and what only passes.
  at(point, saves = [], held = new Map(), hereToo = false) {
    const { trace, rows } = this;
    const moment = this.moments[point];
    const here = new Map();
    const pass = (name, size) => this.passing.set(name, [...(this.passing.get(name) ?? []), trace.allocate("transient", size)]);
    for (const event of rows.replay.scripts[point]) {
      const [word, name = ""] = event.split(":");
      const [sign, tensor] = [event[0], event.slice(1)];
      if (event === "+*") {
        for (const [item, size] of moment) if (!here.has(item)) here.set(item, trace.allocate("transient", size));
      } else if (event === "-*") {
        for (const kept of here.values()) trace.free(kept);
        here.clear();
      } else if (event === "-all") {
        for (const kept of [...this.passing.values()].flat()) trace.free(kept);
        this.passing.clear();
      } else if (word === "save") {
        for (const row of saves) if (isOf(row, name)) held.set(row.name, trace.allocate(row.component, row.size));
      } else if (word === "free") {
        for (const row of [...held.keys()].reverse())
          if (isOf({ name: row, component: row.split(".")[0] }, name)) {
            trace.free(held.get(row));
            held.delete(row);
          }
      } else if (word === "again") {
        if (rows.values.recompute_full) this.again(held);
      } else if (word === "grad") {
        if (hereToo) for (const row of this.gradients.get(name) ?? []) pass("grad", rows.sizes["state.kept_gradient"] * row.size);
      } else if (["receive", "end"].includes(event) || word === "use") continue; // no bytes: streams, and buffers that are there already
      else if ("+=".includes(sign)) {
        const size = rows.sizes[`passing.${tensor}`] ?? 0;
        if (moment.has(tensor)) here.set(tensor, trace.allocate("transient", moment.get(tensor)));
        else if (hereToo && size) pass(tensor, size);
      } else if (here.has(tensor)) {
        trace.free(here.get(tensor));
        here.delete(tensor);
      } else if (this.passing.get(tensor)?.length) trace.free(this.passing.get(tensor).pop());
    }
  }

  // The saved tensors of a recomputed layer, where its checkpoint has none in their memory.
  again(held) {
    const { same, scripts } = this.rows.replay;
    for (const row of [...held.keys()])
      if (!Object.values(same).includes(row)) {
        this.trace.free(held.get(row));
        held.delete(row);
      }
    for (const event of scripts.layer_forward) {
      const [word, name = ""] = event.split(":");
      if (event === "end") break;
      if (word === "save")
        for (const row of this.recomputed)
          if (isOf(row, name)) {
            const kept = held.get(same[row.name]);
            if (kept) held.delete(same[row.name]);
            held.set(row.name, kept ?? this.trace.allocate(row.component, row.size));
          }
    }
  }
}

// True if a row has a name, or is of a component of that name; no name is that of all.
function isOf(row, name) {
  return name === "" || name === row.name || name === row.component;
}

// Micro-batches that pass a chunk in a row, as the program groups them.
function groupOf({ microbatch_group, pipeline_parallel }) {
  return microbatch_group || pipeline_parallel;
}

// The step of one rank, action by action.
function tracedStep(state, values, account, microbatches) {
  const name = evaluatorName(state);
  const own = { ...values, pipeline_rank: account.rank };
  const rows = new Rows(shardmath[name], DATA.evaluators[name].replay, own, account.numbers);
  return new Step(rows, scheduleName(state, values), groupOf(values)).run(microbatches);
}

// The order of passes: that of a program with chunks is 1F1B where a rank has one.
function scheduleName(state, { virtual_pipeline }) {
  const { schedule } = partOf(state);
  return schedule === "interleaved" && virtual_pipeline === 1 ? "1f1b" : schedule;
}
