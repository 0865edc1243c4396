// Units of FSDP2: parameters that are gathered and gradients that are reduced together, as `src/shardmath/steps/units.py`
// has them.
const COMPUTE = 2; // bytes of a gathered element: parameters are computed with in bf16
const [GATHERED, REDUCED] = ["gathered parameters", "reduced gradients"];

class Units {
  order = [];
  next = null;
  buffer = null;
  input = null;
  reduced = [];
  added = [];
  first = true;

  constructor(rows, trace) {
    Object.assign(this, { rows, trace });
    const { data_parallel_replicas = 1, data_parallel, context_parallel } = rows.values;
    this.replicas = data_parallel_replicas;
    this.shards = Math.max(1, Math.floor((data_parallel * context_parallel) / this.replicas));
    const places = { layer: rows.inLayer, embedding: ["FIRST"], last: ["LAST"] };
    this.known = Object.fromEntries(Object.entries(places).map(([unit, own]) => {
      const weights = rows.every.filter(({ role, place }) => role === "weight" && own.includes(place));
      const components = [...new Set(weights.map(({ component }) => component))];
      const aligned = Math.ceil(components.reduce((sum, name) => sum + rows.account[`${name}.aligned`], 0));
      return [unit, { aligned, copies: copiesOf(COMPUTE * aligned, weights.map(({ size }) => size)) }];
    }));
  }

  open(unit) {
    const buffer = this.gather(unit);
    this.freeBuffer();
    this.buffer = buffer;
    this.order.push({ unit, buffer: null, parameters: this.copied(unit) });
  }

  // Free a unit behind its forward pass, where it is not kept for the backward pass.
  close(unit) {
    const { reshard } = this.rows.replay;
    if (unit === "last") this.freeBuffer();
    if (reshard !== "always" && !(reshard === "default" && unit !== "last")) return;
    this.trace.freeAll(this.order.at(-1).parameters);
    this.order.at(-1).parameters = [];
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
      this.trace.free(buffer);
    }
    opened.buffer = null;
    this.current = opened;
    if (!this.order.length) return;
    this.next = this.order.pop();
    this.next.buffer = this.next.parameters.length ? null : this.gather(this.next.unit);
  }

  // Reduce the gradients of a unit, and free its parameters.
  reduce(unit, gradients) {
    const { trace, rows } = this;
    trace.freeAll(this.current.parameters);
    this.current.parameters = [];
    const elements = this.known[unit].aligned;
    const [width, kept] = [rows.values.gradient_bytes, rows.sizes["state.gradient"]];
    if (this.input) trace.free(this.input);
    this.input = trace.allocate(REDUCED, width * elements);
    trace.freeAll(gradients.slice(0, -1));
    let reduced = trace.allocate("gradient", Math.floor((width * elements) / this.shards));
    if (kept !== width) {
      const low = reduced;
      reduced = trace.allocate("gradient", Math.floor((kept * elements) / this.shards));
      trace.free(low);
    }
    trace.freeAll(gradients.slice(-1)); // a local name holds the last one until the function returns
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
    const whole = COMPUTE * this.known[unit].aligned;
    const share = this.trace.allocate(GATHERED, Math.floor(whole / this.shards));
    const buffer = this.trace.allocate(GATHERED, whole);
    this.trace.free(share);
    return buffer;
  }

  freeBuffer() {
    if (this.buffer) this.trace.free(this.buffer);
    this.buffer = null;
  }

  copied(unit) {
    return this.known[unit].copies.map((size) => this.trace.allocate(GATHERED, size));
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
