{% include "page/rows.js" %}
{% include "page/units.js" %}
{% include "page/player.js" %}
// Memory over one step: what is allocated and freed, in the order of the schedule, as `src/shardmath/steps` replays it.
const LASTING = ["weight", "gradient", "optimizer", "input", "buffer"];

// Why no timeline is drawn of a rank, or of some rank; empty where it is.
function untraced(state, values, rank = values.pipeline_parallel - 1) {
  const { replay } = DATA.evaluators[evaluatorName(state)];
  if (typeof replay === "string") return replay;
  const isUneven = ["first_stage_layers", "last_stage_layers", "account_for_embedding", "account_for_loss"].some((name) => values[name]);
  const beyond = [...replay.limits, ...(isUneven ? replay.limits_of_uneven : [])].find(({ name, most, beside, on_last }) => values[name] > most
    && (!beside || values[beside]) && (!on_last || rank === values.pipeline_parallel - 1));
  return beyond ? `${beyond.blamed || `${beyond.name} = ${values[beyond.name]}`}: ${beyond.rule}` : "";
}

class Trace {
  now = {};
  total = 0;
  points = [];

  allocate(series, size) {
    this.now[series] = (this.now[series] ?? 0) + size;
    this.total += size;
    if (this.total > this.most) [this.most, this.isMost] = [this.total, true];
    return { series, size };
  }

  free({ series, size }) {
    this.keep();
    this.now[series] -= size;
    this.total -= size;
  }

  freeAll(tensors) {
    tensors.forEach((tensor) => this.free(tensor));
  }

  // Keep what is in use, if that is the most so far.
  keep() {
    if (this.isMost) [this.isMost, this.snapshot] = [false, { ...this.now }];
  }

  // Begin an action: its point is the moment of it at which most is in use.
  begin() {
    [this.most, this.isMost] = [this.total, true];
  }

  end(action) {
    this.keep();
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
    this.player = new Player(rows, this.trace);
    const places = { embedding: ["FIRST"], ...rows.replay.places, last: ["LAST"] };
    this.parts = Object.fromEntries(Object.entries(places).map(([name, of]) => [name, rows.saved(of)]));
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
    if (this.player.bound.isUsed) this.once(microbatches); // the step before leaves something behind
    this.trace.points = [];
    return this.once(microbatches);
  }

  once(microbatches) {
    const { rows, trace } = this;
    const { pipeline_parallel: p, pipeline_rank: rank } = rows.values;
    const flying = new Map();
    const walked = this.walked(microbatches);
    trace.begin();
    this.at("step_begin", [], new Map(), true);
    for (const action of actionsOf(this.schedule, p, walked, this.chunks, this.group, rank)) {
      const { kind, chunk, microbatch } = action;
      const [isFirst, isLast] = [rank === 0 && chunk === 0, rank === p - 1 && chunk === this.chunks - 1];
      const name = `${chunk}.${microbatch}`;
      trace.begin();
      if (kind === "F") flying.set(name, this.forward(this.kindsOf(chunk), chunk, isFirst, isLast));
      else this.backward(this.kindsOf(chunk), chunk, flying.get(name), isFirst, isLast);
      trace.end(action);
    }
    trace.begin();
    this.at("last_reduce", [], new Map(), true);
    this.at("optimizer_step", [], new Map(), true);
    trace.end({ kind: "optimizer" });
    return { points: trace.points, walked };
  }

  // The kinds of the layers of a chunk; one end of the model may have a chunk with a layer less.
  kindsOf(chunk) {
    const { layers, layerKinds, values } = this.rows;
    const longest = Math.ceil(layers / this.chunks);
    const lightest = values.pipeline_rank === 0 ? 0 : this.chunks - 1;
    return layerKinds.slice(0, longest - Number(layers % this.chunks > 0 && chunk === lightest));
  }

  at(...point) {
    this.player.play(...point);
  }

  forward(kinds, chunk, isFirst, isLast) {
    const [embedding, head, loss] = [new Map(), new Map(), new Map()];
    this.at("chunk_forward", [], new Map(), !isFirst);
    if (isFirst) this.at("embedding_forward", this.parts.embedding, embedding, true);
    const layers = kinds.map((kind, place) => {
      const saved = new Map();
      this.player.bound.enter(kind, chunk, place);
      this.at(`${kind}_forward`, this.parts[kind], saved, true);
      return saved;
    });
    const last = isLast ? this.parts.last : [];
    this.at("head_forward", last.filter(({ component }) => component !== "loss"), head, isLast);
    this.at("loss_forward", last.filter(({ component }) => component === "loss"), loss, isLast);
    this.at("after_forward", [], new Map(), !isLast);
    return { embedding, layers, head, loss };
  }

  backward(kinds, chunk, { embedding, layers, head, loss }, isFirst, isLast) {
    this.at("backward_start");
    this.at("loss_backward", [], loss, isLast);
    this.at("head_backward", [], head, isLast);
    this.at("norm_backward", [], head, isLast);
    this.at("head_reduce", [], head, isLast);
    this.at("stage_exchange", [], new Map(), !isLast);
    for (let place = kinds.length - 1; place >= 0; place--) {
      this.player.bound.enter(kinds[place], chunk, place);
      this.at(`${kinds[place]}_backward`, [], layers[place], true);
    }
    this.at("embedding_backward", [], embedding, isFirst);
    this.player.bound.end();
    this.at("backward_end");
    this.player.units?.end();
  }
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
