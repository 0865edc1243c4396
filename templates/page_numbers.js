// Numbers without a screen: the values of all parameters, the account of a rank, what fits, the best layouts.
const DATA = JSON.parse(document.getElementById("data").textContent);
const MODELS = new Map(DATA.models.map((model) => [model.name, model]));
const GPUS = new Map(DATA.gpus.map((gpu) => [gpu.name, gpu]));
const GIB = 2 ** 30;

// Some implementations have evaluators of their own for pipelines.
function evaluatorName({ model, implementation, numbers }) {
  const [alone, staged] = MODELS.get(model).evaluators[implementation];
  return numbers.pipeline_parallel === 1 ? alone : staged;
}

// Every parameter by name, as `shardmath explain` puts defaults in.
function valuesOf(state) {
  const known = DATA.evaluators[evaluatorName(state)];
  const values = { ...known.defaults, ...GPUS.get(state.gpu).values, ...DATA.modes[state.recompute], ...state.numbers };
  for (const [name, leader] of Object.entries(known.following)) values[name] = values[leader];
  if (values.tensor_parallel === 1) values.sequence_parallel = 0;
  values.data_parallel = dataParallel(values);
  values.pipeline_rank = 0;
  return values;
}

// What is wrong with a layout: the first rule that it breaks, in words; undefined if it breaks none.
function brokenRule(evaluator, values) {
  const said = (field, text) => `${field} = ${values[field]}: ${text}`;
  if (!Number.isInteger(values.data_parallel))
    return said("num_gpus", "must be a multiple of tensor_parallel * context_parallel * pipeline_parallel");
  const broken = evaluator.rulesMet(values).indexOf(false);
  return broken < 0 ? undefined : said(...evaluator.RULES[broken].slice(1));
}

// The moment at which a rank peaks; the first of several.
function siteOf(numbers, sites) {
  let best = "after_forward";
  let most = -1;
  for (const name of sites) {
    const size = numbers[`stage.${name}.all`];
    if (size > most) [best, most] = [name, size];
  }
  return most === numbers["stage.moment"] ? best : "after_forward";
}

// All that one pipeline rank keeps at its peak, in bytes: lines by term, sums by role.
function accountOf(state, values, rank) {
  const name = evaluatorName(state);
  const [evaluator, known] = [shardmath[name], DATA.evaluators[name]];
  const numbers = evaluator.terms({ ...values, pipeline_rank: rank });
  const site = siteOf(numbers, Object.keys(known.sites));
  const freed = known.sites[site]?.freed ?? [];
  const lines = [];
  const byRole = Object.fromEntries(DATA.roles.map((role) => [role, 0]));
  for (const [term, component, kind] of known.lines) {
    const role = kind === site ? "transient" : kind;
    if (!(role in byRole) || numbers[term] === 0 || (role === "activation" && freed.includes(component))) continue;
    lines.push({ term, component, role, bytes: numbers[term] });
    byRole[role] += numbers[term];
  }
  for (const role of DATA.roles) byRole[role] = evaluator.whole(byRole[role]);
  lines.sort((left, right) => DATA.roles.indexOf(left.role) - DATA.roles.indexOf(right.role));
  const total = evaluator.whole(numbers["stage.total"]);
  const verdict = evaluator.VERDICTS[evaluator.verdict(total, values.gpu_memory)][0];
  return { rank, site, lines, byRole, total, verdict, numbers };
}

function accountsOf(state, values) {
  return Array.from({ length: values.pipeline_parallel }, (_, rank) => accountOf(state, values, rank));
}

// The peak over all ranks and the number of its verdict, or what is wrong with the layout. What doubles cannot hold
// exactly is refused like a layout that breaks a rule.
function peakOf(evaluator, values) {
  try {
    const broken = brokenRule(evaluator, values);
    if (broken) return { broken };
    const peak = evaluator.whole(evaluator.terms(values).peak);
    return { peak, verdict: evaluator.verdict(peak, values.gpu_memory) };
  } catch (error) {
    if (error instanceof RangeError) return { broken: error.message };
    throw error;
  }
}

function divisors(number) {
  const found = [];
  for (let low = 1; low * low <= number; low++)
    if (number % low === 0) found.push(...new Set([low, number / low]));
  return found.sort((left, right) => left - right);
}

function precedes(left, right) {
  for (let place = 0; place < left.length; place++) if (left[place] !== right[place]) return left[place] < right[place];
  return false;
}

// Every layout of the job, tried in the order of `shardmath sweep`; yields what was found so far.
function* sweepOf(state, top) {
  const known = DATA.evaluators[evaluatorName(state)];
  const values = valuesOf(state);
  const degrees = divisors(values.num_gpus);
  const fixed = (name, candidates) => (name in known.fixed ? [known.fixed[name]] : candidates);
  const found = { best: [], legal: 0, fits: 0, done: false };
  for (const tensor of fixed("tensor_parallel", degrees))
    for (const context of fixed("context_parallel", degrees)) {
      for (const pipeline of fixed("pipeline_parallel", degrees)) {
        Object.assign(values, { tensor_parallel: tensor, context_parallel: context, pipeline_parallel: pipeline });
        const evaluator = shardmath[evaluatorName({ ...state, numbers: values })];
        values.data_parallel = dataParallel(values);
        if (!Number.isInteger(values.data_parallel)) continue;
        for (const name of Object.keys(known.following)) values[name] = values[known.following[name]];
        for (const experts of fixed("expert_parallel", divisors(Math.max(1, values.num_experts))))
          for (const batch of divisors(values.global_batch_size))
            for (const sequence of fixed("sequence_parallel", [0, 1]))
              for (const [recompute, switches] of Object.entries(DATA.modes)) {
                Object.assign(values, switches, {
                  expert_parallel: experts, micro_batch_size: batch, sequence_parallel: sequence,
                });
                const { broken, peak, verdict } = peakOf(evaluator, values);
                if (broken) continue;
                found.legal++;
                if (verdict !== 0) continue;
                found.fits++;
                const keys = ranking({ ...values, peak });
                if (found.best.length === top && !precedes(keys, found.best[top - 1].keys)) continue;
                const place = found.best.findIndex((other) => precedes(keys, other.keys));
                found.best.splice(place < 0 ? found.best.length : place, 0, { keys, peak, recompute, values: { ...values } });
                found.best.length = Math.min(found.best.length, top);
              }
      }
      yield found;
    }
  found.done = true;
  yield found;
}
