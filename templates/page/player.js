// Scripts of a step, as `symbolic/orders/words.py` spells them and `src/shardmath/steps/script.py` plays them.
const parsed = new WeakMap();
// Output of a recomputed layer, which its checkpoint holds.
const OUTPUT = "recomputed.output";
const [INPUT, GRADIENT] = ["layer_input.input", "residual_gradient.gradient_beside_experts"];

// Events of all scripts, cut once: a sign or a word, the name behind it, and the tensor without which it is left out.
function eventsOf(scripts) {
  if (!parsed.has(scripts))
    parsed.set(scripts, Object.fromEntries(Object.entries(scripts).map(([point, events]) => [point, events.map((spelled) => {
      const [, , condition, event] = /^(if:([^:]+):)?(.*)$/.exec(spelled);
      if (["+*", "-*", "-all"].includes(event)) return [event, "", condition];
      const [word, name = ""] = /^[a-z]/.test(event) ? event.split(":") : [event[0], event.slice(1)];
      return [word, name, condition];
    })])));
  return parsed.get(scripts);
}

// Inputs and gradients that recomputed layers with experts hold until their next forward pass, by chunk and layer.
class Bound {
  held = new Map();
  behind = null;
  place = "0.0";

  // True if the first layer is at work.
  get isFirst() {
    return this.place === "0.0";
  }

  constructor(rows, trace) {
    this.trace = trace;
    this.same = rows.replay.same;
    this.size = rows.sizes[GRADIENT] ?? 0;
    this.isUsed = Boolean(rows.values.recompute_full && rows.replay.experts);
  }

  enter(kind, chunk, layer) {
    [this.place, this.hasExperts] = [`${chunk}.${layer}`, this.isUsed && kind === "expert_layer"];
  }

  bindInput(held) {
    if (!this.hasExperts) return;
    const name = [...held.keys()].find((row) => (this.same[row] ?? row) === INPUT);
    this.held.set(this.place, [held.get(name)]);
    held.delete(name);
  }

  bindGradient(here) {
    if (this.behind) {
      this.held.get(this.behind).push(here.get(GRADIENT));
      here.delete(GRADIENT);
    }
    this.behind = this.hasExperts ? this.place : null;
  }

  end() {
    if (this.behind) this.held.get(this.behind).push(this.trace.allocate("residual_gradient", this.size));
    this.behind = null;
  }

  unbind() {
    this.trace.freeAll(this.held.get(this.place) ?? []);
    this.held.delete(this.place);
  }
}

// Those whose tensors have bytes.
function eventsAt(scripts, sizes) {
  return Object.fromEntries(Object.entries(eventsOf(scripts)).map(([point, events]) =>
    [point, events.filter(([, , condition]) => !condition || (sizes[`passing.${condition}`] ?? sizes[condition]))]));
}

class Player {
  passing = new Map();
  unsaved = new Map();
  added = [];
  sums = false;
  shared = new Map();
  next = null;

  constructor(rows, trace) {
    Object.assign(this, { rows, trace, scripts: eventsAt(rows.replay.scripts, rows.sizes), bound: new Bound(rows, trace) });
    this.units = rows.replay.units ? new Units(rows, trace, this.scripts) : null;
    this.moments = Object.fromEntries(Object.keys(this.scripts).map((name) => [name, rows.transients(name)]));
    this.walksLayers = rows.replay.scripts.layer_forward.some((word) => word.startsWith("drop"));
    this.forward = rows.saved(rows.inLayer, false);
    this.weights = rows.every.filter(({ role, name }) => role === "weight" && !rows.replay.frozen.includes(name));
    this.kept = new Map(); // names of the rows that a point saves, by its list of rows
    this.words = {
      save: (name, point) => this.save(name, point),
      free: (name, { held }) => { for (const row of [...held.keys()].reverse()) if (isOf(row, name)) this.release(held, row); },
      grad: (name, point) => this.makeGradients(name, point),
      drop: (name) => this.drop(name),
      at: (name, point) => this.enter(name, point),
      end: (name, point) => this.saveRest(point),
      again: (name, point) => this.again(name, point),
      bind: (name, point) => this.bound.bindGradient(point.here),
      unbind: () => this.bound.unbind(),
      remake: (name, { held }) => {
        for (const row of rows.dropped) {
          if ((name === row.component || name === row.name) && !held.has(row.name)) held.set(row.name, this.make(row));
        }
      },
      roots: () => trace.free(trace.allocate("transient", Math.floor(rows.account["stage.listed_roots.optimizer_step"] ?? 0))),
      copied: (name) => this.copy(name),
      added: () => { trace.freeAll(this.added); this.added = []; },
      sum: () => { this.sums = true; },
      share: (name) => { for (const row of rows.shared) if (!this.shared.has(row.name) && isOf(row.name, name)) this.shared.set(row.name, this.make(row)); },
      unshare: (name) => { if (!name || this.bound.isFirst) { trace.freeAll([...this.shared.values()]); this.shared.clear(); } },
      later: (event, point) => { if (!this.bound.isFirst) this.event(event[0], event.slice(1), point); },
      next: () => { this.next = trace.allocate("transient", rows.sizes["passing.output"]); },
      use: () => {}, // buffers are there already
      receive: () => {}, on: () => {}, sent: () => {}, wait: () => {}, // streams have no bytes
      open: (name) => this.units.open(name),
      close: (name) => this.units.close(name),
      finish: () => this.units.freeBuffer(),
      reopen: (name) => this.units.reopen(name),
      reduce: (name) => this.units.reduce(name),
    };
  }

  make(row) {
    return this.trace.allocate(row.component, row.size);
  }

  release(held, row) {
    this.trace.free(held.get(row));
    held.delete(row);
  }

  // The script of a point: rows to save, tensors that are saved; others pass only where the work is here too.
  play(point, saves = [], held = new Map(), hereToo = false) {
    if (!hereToo && this.units) return;
    this.point = point;
    const at = { moment: hereToo ? this.moments[point] : new Map(), saves, held, hereToo, here: new Map() };
    for (const [word, name] of this.scripts[point]) this.event(word, name, at);
  }

  event(word, name, point) {
    const { trace, passing } = this;
    const { moment, here } = point;
    if (word === "+*") {
      for (const [item, size] of moment)
        if (!here.has(item) && !passing.get(item)?.length) here.set(item, trace.allocate("transient", size));
    } else if (word === "-*") {
      trace.freeAll([...here.values()]);
      here.clear();
    } else if (word === "-all") {
      trace.freeAll([...passing.values()].flat());
      passing.clear();
      this.sums = false;
    } else if (word.length > 1) this.words[word](name, point);
    else if (word === "+" && moment.has(name)) here.set(name, trace.allocate("transient", moment.get(name)));
    else if ("+=".includes(word)) this.pass(name, point);
    else if (here.has(name)) this.release(here, name);
    else if (passing.get(name)?.length) trace.free(passing.get(name).shift());
  }

  // A tensor that passes from one point to another, or a part of it.
  pass(name, { hereToo }) {
    const { sizes } = this.rows;
    const [row, pieces = 1] = name.split("/");
    const size = Math.floor((sizes[`passing.${row}`] ?? sizes[row] ?? 0) / pieces);
    if (size && hereToo) this.keep(name, this.trace.allocate("transient", size));
  }

  keep(name, tensor) {
    if (this.passing.has(name)) this.passing.get(name).push(tensor);
    else this.passing.set(name, [tensor]);
  }

  // Go on to another moment: what the one before has in sums ends with it.
  enter(name, point) {
    for (const item of [...point.here.keys()]) if (!(item in this.rows.sizes)) this.release(point.here, item);
    point.moment = this.moments[name];
  }

  makeGradients(name, { hereToo }) {
    const kept = this.rows.sizes["state.kept_gradient"];
    for (const row of hereToo ? this.weights : [])
      if (name === row.component || name === row.name) {
        const tensor = this.trace.allocate("transient", kept * row.size);
        if (this.units) this.units.keep(row, tensor);
        else if (this.sums) this.added.push(tensor);
        else this.keep("grad", tensor);
      }
  }

  // A copy in the place of a tensor, where what a model returns is copied.
  copy(name) {
    const tensors = this.passing.get(name);
    if (!tensors?.length || !this.rows.sizes["passing.copied"]) return;
    tensors.push(this.trace.allocate("transient", tensors[0].size));
    this.trace.free(tensors.shift());
  }

  drop(name) {
    const rows = [...this.unsaved.keys()];
    const dropped = name === "all" ? rows : rows.includes(name) ? [name] : name ? [] : rows.slice(0, -1);
    for (const row of dropped) this.release(this.unsaved, row);
  }

  // The tensor that the instance before made for this one, if it is of this size; a script may say when another is freed.
  handedOver(size) {
    const { next } = this;
    this.next = null;
    if (!next || next.size === size) return next;
    if (this.scripts[this.point].some(([word, name]) => word === "-" && name === "next")) this.passing.set("next", [next]);
    else this.trace.free(next);
    return null;
  }

  // Save rows; those of a recomputed layer that its checkpoint does not keep wait to be dropped.
  save(name, { saves, held }) {
    if (!this.kept.has(saves)) this.kept.set(saves, new Set(saves.map((row) => row.name)));
    const kept = this.kept.get(saves);
    const walked = saves.length && this.walksLayers && this.rows.inLayer.includes(saves[0].place);
    for (const row of walked ? [...saves, ...this.forward.filter((item) => !kept.has(item.name))] : saves) {
      if (!(name === "" || name === row.component || name === row.name) || held.has(row.name) || this.unsaved.has(row.name)) continue;
      const saved = kept.has(row.name) ? row.name : this.rows.replay.same[row.name] ?? row.name;
      const tensor = this.handedOver(row.size) ?? this.make(row);
      if (kept.has(saved)) held.set(saved, tensor);
      else this.unsaved.set(row.name, tensor);
    }
  }

  // Tensors that a checkpoint keeps beside those of the layer.
  saveRest({ saves, held }) {
    for (const row of saves) if (!held.has(row.name)) held.set(row.name, this.make(row));
  }

  // The saved tensors of a recomputed layer, where its checkpoint has none in their memory.
  again(name, point) {
    const { held } = point;
    if (!this.rows.values.recompute_full) return;
    const { same } = this.rows.replay;
    const inMemory = Object.values(same);
    for (const row of [...held.keys()]) if (!inMemory.includes(row) && name !== "kept") this.release(held, row);
    const forward = { moment: new Map(), saves: [], held, hereToo: true, here: new Map() };
    for (const [word, item] of this.scripts[this.point.replace("backward", "forward")]) {
      if (word === "end" && !forward.moment.size) break; // behind the end only results of experts are made again
      if (word === "save") this.saveAgain(item, held);
      else if (word === "at") {
        const made = [...this.moments[item]].filter(([name]) => !this.rows.replay.forward.some((start) => name.startsWith(start)));
        forward.moment = new Map(made);
      } else if ("+-".includes(word[0])) this.event(word, item, forward);
      else if (word === "unbind") this.bound.unbind();
      else if (word === "=") this.event("+", OUTPUT, point);
    }
    if (!this.passing.get(OUTPUT)?.length) this.event("+", OUTPUT, point);
    this.bound.bindInput(held);
  }

  saveAgain(name, held) {
    for (const row of this.forward) {
      if (!(name === row.component || name === row.name) || held.has(row.name)) continue;
      const kept = this.rows.replay.same[row.name];
      const tensor = held.get(kept);
      if (tensor) held.delete(kept);
      held.set(row.name, tensor ?? this.make(row));
    }
  }
}

// True if a row has a name, or is of a component of that name; no name is that of all.
function isOf(row, name) {
  return name === "" || name === row || name === row.split(".")[0];
}
