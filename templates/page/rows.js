// Rows of a rank at the values of its parameters, as `src/shardmath/steps/rows.py` has them: bytes of single tensors, of
// weights elements.
class Rows {
  constructor(evaluator, replay, values, account) {
    Object.assign(this, { values, account, replay, inLayer: [...new Set(Object.values(replay.places).flat())] });
    this.sizes = this.evaluated(evaluator, values, account);
    this.every = this.described(({ name }) => this.sizes[name]);
    const off = Object.fromEntries(replay.parts.filter((name) => values[name]).map((name) => [name, 0]));
    this.dropped = [];
    if (Object.keys(off).length) {
      const others = { ...values, ...off };
      const whole = this.evaluated(evaluator, others, evaluator.terms(others));
      this.dropped = this.described(({ name }) => (this.sizes[name] ? 0 : whole[name]));
    }
    this.layers = account.stage_layers ?? values.num_layers;
    this.layerKinds = this.kinds();
    this.instancesOf = Object.fromEntries(this.inLayer.map((place) =>
      [place, this.layerKinds.filter((kind) => replay.places[kind].includes(place)).length]));
  }

  evaluated(evaluator, values, account) {
    return Object.fromEntries(Object.entries(evaluator.rows(values, account)).map(([name, size]) => [name, Math.ceil(size)]));
  }

  // Rows with the sizes that a function gives them, those that are parts of one tensor as that; those without one left out.
  described(sizeOf) {
    const joined = Object.fromEntries(Object.entries(this.replay.joined).map(([name, parts]) => [parts[0], { name, parts }]));
    const others = Object.values(this.replay.joined).flatMap((parts) => parts.slice(1));
    return Object.entries(this.replay.rows).filter(([row]) => !others.includes(row))
      .map(([row, [component, place, role, lifetime, module, moments, ofLayer]]) => {
        const { name, parts } = joined[row] ?? { name: row, parts: [row] };
        const size = parts.reduce((sum, part) => sum + sizeOf({ name: part }), 0);
        return { name, size, component, place, role, lifetime, module, moments, ofLayer };
      }).filter(({ size }) => size);
  }

  // The kind of each layer of the rank; of several chunks all have the same kinds.
  kinds() {
    const { virtual_pipeline, pipeline_rank, first_dense_layers, moe_layer_step } = this.values;
    const start = virtual_pipeline === 1 ? this.account.layers_before ?? pipeline_rank * this.layers : 0;
    return Array.from({ length: this.layers }, (_, place) => (this.replay.experts && start + place >= first_dense_layers
      && (start + place + 1) % moe_layer_step === 0 ? "expert_layer" : "layer"));
  }

  instances({ place }) {
    if (place in this.instancesOf) return this.instancesOf[place];
    const { pipeline_rank, pipeline_parallel } = this.values;
    return { FIRST: Number(pipeline_rank === 0), LAST: Number(pipeline_rank === pipeline_parallel - 1) }[place] ?? 1;
  }

  // Tensors that one instance saves for the backward pass, by component in the order of the ledger.
  saved(places, recomputed = Boolean(this.values.recompute_full)) {
    const saving = this.every.filter((row) => row.role === "activation" && places.includes(row.place) && row.lifetime !== "SHARED"
      && !row.moments.length && (!this.inLayer.includes(row.place) || row.ofLayer === recomputed));
    return [...Map.groupBy(saving, ({ component }) => component).values()].flat();
  }

  // Tensors that all layers of a step save together.
  get shared() {
    return this.every.filter((row) => row.role === "activation" && row.lifetime === "SHARED" && this.instances(row));
  }

  // Bytes of what exists at a moment alone, by name: rows, and sums that no walk meets otherwise.
  transients(moment) {
    const parts = new Map();
    for (const row of this.every) {
      const many = this.inLayer.includes(row.place) ? 1 : this.instances(row);
      if (row.moments.includes(moment) && many) parts.set(row.name, many * row.size);
    }
    for (const [name, [when, walked]] of Object.entries(this.replay.sums)) {
      if (when !== moment || walked || !this.account[name]) continue;
      const [size, count] = [Math.ceil(this.account[name]), this.sizes[`pieces.${name.split(".")[1]}`] ?? 1];
      for (let piece = 0; piece < count; piece++)
        parts.set(`${name}.${piece}`, Math.floor((size * (piece + 1)) / count) - Math.floor((size * piece) / count));
    }
    return parts;
  }
}
