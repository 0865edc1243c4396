// Units of FSDP2: parameters that are gathered and gradients that are reduced together, as `src/shardmath/steps/units.py`
// has them.
const COMPUTE = 2; // bytes of a gathered element: parameters are computed with in bf16
const [GATHERED, REDUCED] = ["gathered parameters", "reduced gradients"];

// Units that have done their forward pass when the model has.
const LAST = ["last", "root", "joined"];

class Units {
  opened = {};
  made = {};
  order = [];
  next = null;
  buffer = null;
  input = null;
  reduced = [];
  added = [];
  first = true;

  constructor(rows, trace, scripts) {
    Object.assign(this, { rows, trace, areCast: rows.sizes["state.weight"] !== COMPUTE });
    const { data_parallel_replicas = 1, data_parallel, context_parallel } = rows.values;
    this.replicas = data_parallel_replicas;
    this.shards = Math.max(1, Math.floor((data_parallel * context_parallel) / this.replicas));
    const places = { layer: rows.inLayer, embedding: ["FIRST"], last: ["LAST"], root: ["FIRST", "LAST"],
      joined: ["LAST", "FIRST"] };
    const reduced = Object.values(scripts).flat().filter(([word]) => word === "reduce").map(([, name]) => name);
    this.places = Object.fromEntries(Object.entries(places).filter(([unit]) => reduced.includes(unit)));
    const inModules = ({ name }) => rows.replay.modules.indexOf(name) >>> 0; // those that it lacks are the last
    this.known = Object.fromEntries(Object.entries(this.places).map(([unit, own]) => {
      const weights = rows.every.filter(({ role, place }) => role === "weight" && own.includes(place))
        .sort((one, other) => (unit !== "layer" && own.indexOf(one.place) - own.indexOf(other.place))
          || inModules(one) - inModules(other));
      const components = [...new Set(weights.map(({ component }) => component))];
      const aligned = Math.ceil(components.reduce((sum, name) => sum + rows.account[`${name}.aligned`], 0));
      const names = weights.map(({ name }) => name);
      return [unit, { aligned, names, copies: copiesOf(COMPUTE * aligned, weights.map(({ size }) => size)) }];
    }));
  }

  open(unit) {
    const buffer = this.gather(unit);
    this.opened[unit] = { unit, buffer: null, parameters: this.copied(unit) };
    this.freeBuffer();
    this.buffer = buffer;
  }

  // Free a unit behind its forward pass, where it is not kept for the backward pass.
  close(unit) {
    const { reshard } = this.rows.replay;
    const opened = this.opened[unit];
    this.order.push(opened);
    if (reshard !== "always" && !(reshard === "default" && !LAST.includes(unit))) return;
    this.trace.freeAll(opened.parameters);
    opened.parameters = [];
  }

  // Gather a unit for its backward pass, and begin to gather the one before it.
  reopen(unit) {
    let opened = this.next;
    if (opened?.unit !== unit)
      opened = this.order.at(-1)?.unit === unit ? this.order.pop() : { unit, buffer: null, parameters: [] };
    this.next = null;
    if (!opened.parameters.length) {
      const buffer = opened.buffer ?? this.gather(unit);
      opened.parameters = this.copied(unit);
      if (buffer) this.trace.free(buffer);
    }
    opened.buffer = null;
    this.opened[unit] = opened;
    if (!this.order.length) return;
    this.next = this.order.pop();
    this.next.buffer = this.next.parameters.length ? null : this.gather(this.next.unit);
  }

  // Keep the gradient of a parameter until its unit is reduced.
  keep({ name, place }, tensor) {
    const unit = Object.keys(this.places).find((item) => this.places[item].includes(place));
    (this.made[unit] ??= []).push({ name, tensor });
  }

  // Reduce the gradients of a unit, and free its parameters.
  reduce(unit) {
    const { trace, rows } = this;
    trace.freeAll(this.opened[unit].parameters);
    const { aligned: elements, names } = this.known[unit];
    const gradients = (this.made[unit] ?? []).sort((one, other) => names.indexOf(one.name) - names.indexOf(other.name))
      .map(({ tensor }) => tensor);
    delete this.made[unit];
    const [width, kept] = [rows.values.gradient_bytes, rows.sizes["state.gradient"]];
    if (this.input) trace.free(this.input);
    this.input = trace.allocate(REDUCED, width * elements);
    const held = this.shards > 1 ? gradients.slice(-1) : []; // a local name holds the last one until the function returns
    trace.freeAll(gradients.slice(0, gradients.length - held.length));
    let reduced = trace.allocate("gradient", Math.floor((width * elements) / this.shards));
    if (kept !== width) {
      const low = reduced;
      reduced = trace.allocate("gradient", Math.floor((kept * elements) / this.shards));
      trace.free(low);
    }
    trace.freeAll(held);
    if (this.first) this.reduced.push(reduced);
    else if (this.replicas > 1) this.added.push(reduced); // held by the all-reduce of a unit
    else trace.free(reduced);
  }

  // End a backward pass.
  end() {
    if (this.input) this.trace.free(this.input);
    this.trace.freeAll(this.added);
    [this.input, this.first, this.added] = [null, false, []];
  }

  gather(unit) {
    if (this.shards === 1) return null;
    const whole = COMPUTE * this.known[unit].aligned;
    const share = this.trace.allocate(GATHERED, this.areCast ? Math.floor(whole / this.shards) : 0);
    const buffer = this.trace.allocate(GATHERED, whole);
    this.trace.free(share);
    return buffer;
  }

  freeBuffer() {
    if (this.buffer) this.trace.free(this.buffer);
    this.buffer = null;
  }

  // The parameters of a unit, out of its buffer; one rank alone casts each of them first.
  copied(unit) {
    let cast = null;
    const parameters = this.known[unit].copies.map((size) => {
      if (this.shards === 1 && this.areCast) {
        const earlier = cast;
        cast = this.trace.allocate(GATHERED, size);
        if (earlier) this.trace.free(earlier);
      }
      return this.trace.allocate(GATHERED, size);
    });
    if (cast) this.trace.free(cast);
    return parameters;
  }
}

// A number of bytes cut in proportion to sizes, in whole bytes; products are beyond what doubles hold.
function copiesOf(whole, sizes) {
  const elements = sizes.reduce((sum, size) => sum + size, 0);
  let [before, start] = [0, 0];
  return sizes.map((size) => {
    before += size;
    const end = Number((BigInt(whole) * BigInt(before)) / BigInt(elements));
    const held = end - start;
    start = end;
    return held;
  });
}
