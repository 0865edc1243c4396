// The questions of `shardmath recommend`: the best layouts, those of every kind, and what nothing beats.
const TOP = 200; // entries that the list of the fastest is made from; copies are dropped when it is shown
const FASTEST = 10; // layouts that the list shows
const KINDS = ["tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel"];

// Of layouts with the same numbers the first one counts.
function precedes(left, right) {
  for (let place = 0; place < left.keys.length; place++)
    if (left.keys[place] !== right.keys[place]) return left.keys[place] < right.keys[place];
  return left.order < right.order;
}

// Layouts of which none is faster and smaller than another, from the fastest to the smallest.
class Front {
  entries = [];

  add(seconds, peak, order, make) {
    let [low, high] = [0, this.entries.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.entries[middle].seconds <= seconds) low = middle + 1;
      else high = middle;
    }
    const next = this.entries[low - 1];
    if (next?.peak <= peak && !(next.seconds === seconds && next.peak === peak && order < next.order)) return;
    let start = low;
    while (start && this.entries[start - 1].seconds === seconds) start--;
    let end = low;
    while (end < this.entries.length && this.entries[end].peak >= peak) end++;
    this.entries.splice(start, end - start, make());
  }
}

class Answers {
  legal = 0;
  refused = 0; // beyond what doubles hold
  slow = 0; // too slow to be shown, so that nobody asks for their memory
  verdicts = [0, 0, 0];
  bound = Infinity; // seconds from which a layout is too slow
  inserted = 0; // layouts that were among the best, and as many when the bound was computed
  tightened = 0;
  ahead = null; // answers of layouts that were looked at before the others
  best = [];
  kinds = new Map();
  fitting = new Front();
  everything = new Front();

  // The answers to show now: of a search that goes on those that were looked at before, if they have a better one.
  get shown() {
    const other = this.ahead?.best[0];
    return other && (!this.best.length || precedes(other, this.best[0])) ? this.ahead : this;
  }

  // Layouts slower than the fastest that are shown and than those worth trying are too slow; not anew for each layout.
  tighten() {
    if (this.inserted - this.tightened < FASTEST) return;
    this.tightened = this.inserted;
    const last = distinct(this.best, FASTEST)[FASTEST - 1];
    if (last) this.bound = Math.min(this.bound, Math.max(last.seconds, (1 + DATA.choosing.slower) * this.best[0].seconds));
  }

  passes(seconds) {
    if (seconds <= this.bound) return false;
    this.legal++;
    this.slow++;
    return true;
  }

  add({ peak, process, seconds, verdict }, values, labels, part, order = this.legal) {
    this.legal++;
    this.verdicts[verdict]++;
    let made = null;
    const evaluator = shardmath[part.evaluator];
    const own = { keys: ranking({ __proto__: values, step_time: seconds, peak }), order };
    const make = () => (made ??= { ...own, peak, seconds, verdict, values: { ...values }, labels: { ...labels }, part,
      rule: evaluator.rule80(peak, values.gpu_memory),
      probability: evaluator.runOutProbability(peak, process, values.gpu_memory) });
    this.everything.add(seconds, peak, order, make);
    if (verdict !== 0) return;
    this.fitting.add(seconds, peak, order, make);
    const kind = KINDS.map((name) => labels[name] ?? "").join();
    const known = this.kinds.get(kind);
    if (!known || precedes(own, known)) this.kinds.set(kind, make());
    if (this.best.length === TOP && !precedes(own, this.best[TOP - 1])) return;
    let place = this.best.length;
    while (place && precedes(own, this.best[place - 1])) place--;
    this.best.splice(place, 0, make());
    this.best.length = Math.min(this.best.length, TOP);
    this.inserted++;
  }
}

// The layouts worth trying, best first, as `shardmath recommend` chooses them.
function choose({ best, kinds, fitting, everything }) {
  const { slower, faster, smaller, most, others, alike, risks } = DATA.choosing;
  const first = best[0];
  const chosen = first ? [{ ...first, role: "the fastest that fits" }] : [];
  let last = first;
  for (const risk of risks) {
    const item = everything.entries.find(({ probability }) => probability <= risk);
    if (!item || (last && item.seconds >= (1 - faster) * last.seconds)) continue;
    chosen.push({ ...item, role: last ? "faster, if it fits" : `the fastest that runs out with a probability up to ${(100 * risk).toFixed(0)}%` });
    last = item;
  }
  const least = everything.entries.at(-1);
  if (!last && least?.verdict === 1) chosen.push({ ...least, role: "the likeliest to fit" });
  if (first) {
    const kindOf = ({ values }) => [values.tensor_parallel, ...KINDS.slice(1).map((name) => values[name] > 1)].join();
    const [seen, apart] = [new Set([kindOf(first)]), [first]];
    const near = (one, other) => ["seconds", "peak"].every((key) => Math.abs(one[key] / other[key] - 1) < alike);
    const close = fitting.entries.filter((item) => item.seconds <= (1 + slower) * first.seconds);
    const least = close.reduce((one, other) => (other.peak < one.peak ? other : one));
    const roomy = least.peak < (1 - smaller) * first.peak ? [{ ...least, role: "the most room" }] : [];
    for (const item of [...kinds.values()].sort((left, right) => (precedes(left, right) ? -1 : 1))) {
      if (chosen.length + roomy.length >= most || item.seconds > (1 + slower) * first.seconds || seen.size > others) break;
      if (seen.has(kindOf(item)) || apart.some((other) => near(item, other))) continue;
      seen.add(kindOf(item));
      apart.push(item);
      chosen.push({ ...item, role: "the fastest of another kind" });
    }
    chosen.push(...roomy);
  }
  // A layout that is chosen twice has the place of the last and the role of the first.
  const named = new Map(chosen.reverse().map((item) => [JSON.stringify([item.part.evaluator, item.labels]), item]));
  return [...named.values()].reverse();
}

// Of the layouts that are faster than the first choice the one of least memory, or the smallest where nothing fits.
function excludedBy({ best, everything }) {
  const faster = everything.entries.filter((item) => !best[0] || item.seconds < best[0].seconds);
  return faster.at(-1);
}

// Of the layouts that fit by the published 80 % rule the fastest, if its step is shorter than that of the first choice by
// more than the error of times.
function byRule80({ best, everything }, { gpu, numbers }) {
  const item = everything.entries.find(({ rule }) => rule === 0);
  const error = errorOf(GPUS.get(gpu), numbers).error || DATA.choosing.equal;
  return best[0] && item?.seconds < (1 - error) * best[0].seconds ? item : undefined;
}

// The fastest that fit, without layouts that differ in what changes no term of memory or time.
function distinct(entries, count) {
  const idle = new Set(DATA.choosing.idle);
  const seen = new Set();
  const kept = [];
  for (const item of entries) {
    const evaluator = shardmath[item.part.evaluator];
    const memory = evaluator.terms(item.values);
    const time = evaluator.times(item.values, memory);
    const measured = [[memory, evaluator.TERMS], [time, evaluator.TIMES]].flatMap(([numbers, units]) => Object.keys(numbers)
      .filter((name) => units[name][0] !== "layers").map((name) => numbers[name]));
    const own = Object.keys(item.values).filter((name) => !idle.has(name)).map((name) => item.values[name]);
    const name = JSON.stringify([own, item.keys, measured]);
    if (seen.has(name)) continue;
    seen.add(name);
    kept.push(item);
    if (kept.length === count) break;
  }
  return kept;
}
