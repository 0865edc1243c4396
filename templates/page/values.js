// Numbers without a screen: the data, the values of all parameters, the account of a rank, the verdict.
let DATA, MODELS, GPUS;
const GIB = 2 ** 30;

function use(data) {
  DATA = data;
  MODELS = new Map(data.models.map((model) => [model.name, model]));
  GPUS = new Map(data.gpus.map((gpu) => [gpu.name, gpu]));
}

function divides(divisor, dividend) {
  return dividend % divisor === 0;
}

function ceil_div(numerator, denominator) {
  return Math.ceil(numerator / denominator);
}

function divisors(number) {
  const found = [];
  for (let low = 1; low * low <= number; low++)
    if (number % low === 0) found.push(...new Set([low, number / low]));
  return found.sort((left, right) => left - right);
}

function usualParts({ model, implementation }) {
  return MODELS.get(model).parts[implementation].map((place) => DATA.parts[place]);
}

// The parts of the space with the chosen kernels, which have the same layouts.
function partsOf(chosen) {
  const changed = DATA.variants[chosen.implementation]?.[kernelKey(chosen.kernels)];
  const usual = usualParts(chosen);
  return changed ? usual.map((part) => ({ ...part, evaluator: changed[part.evaluator] ?? part.evaluator })) : usual;
}

function kernelKey(kernels) {
  return Object.entries(kernels).sort().map((pair) => pair.join("=")).join(",");
}

function kernelsOfKey(key) {
  return Object.fromEntries(key.split(",").filter(Boolean).map((pair) => pair.split("=")));
}

// Combinations of kernels that the page has for a model: those with which every part has formulas.
function kernelKeys(chosen) {
  const known = DATA.variants[chosen.implementation] ?? {};
  const usual = usualParts(chosen);
  return Object.keys(known).filter((key) => usual.every((part) => part.evaluator in known[key]));
}

// The sizes that an axis of a part tries, for a job with these values.
function candidatesOf(rule, values) {
  if (Array.isArray(rule)) return rule;
  if ("chunks" in rule) {
    const totals = Array.from({ length: rule.chunks + 1 }, (_, more) => values.num_layers + more);
    const several = totals.flatMap((total) => divisors(total).filter((size) => size > 1 && size <= Math.floor(total / 2)));
    return [...new Set([1, ...several])].sort((left, right) => left - right);
  }
  const { at_least = 1, at_most } = rule;
  const most = at_most === undefined ? Infinity : values[at_most];
  return divisors(Math.max(1, values[rule.divisors_of])).filter((size) => at_least <= size && size <= most);
}

// Programs differ with and without a pipeline, by the order of passes, and by what recompute keeps.
function hasPipeline(part) {
  const rule = new Map(part.axes).get("pipeline_parallel");
  return { alone: !(rule?.at_least > 1), staged: !(Array.isArray(rule) && rule.length === 1 && rule[0] === 1) };
}

function partOf(chosen) {
  const { schedule, recompute, numbers } = chosen;
  const staged = numbers.pipeline_parallel > 1;
  const every = partsOf(chosen);
  const able = every.filter((part) => hasPipeline(part)[staged ? "staged" : "alone"]);
  const known = able.length ? able : every;
  const ordered = known.filter((part) => part.schedule === schedule);
  const usable = staged && ordered.length ? ordered : known;
  return usable.find((part) => recompute in part.modes) ?? usable[0];
}

function evaluatorName(state) {
  return partOf(state).evaluator;
}

// Values set by the GPU, the network between nodes and the accepted risk.
function machineOf({ gpu, network, risk }, known) {
  const { values, networks, fp8 } = GPUS.get(gpu);
  const matmul = known.fp8 && typeof fp8 === "number" ? { matmul_flops: fp8 } : {};
  return { ...values, ...networks[network], ...matmul, process_parts: DATA.risks[risk] };
}

// Overlaps that a run cannot have are off, unless somebody asked for them.
function switchOff({ off }, values, settings) {
  const [single, ahead, ...others] = DATA.settings.deciding;
  const switches = [ahead in settings ? 0 : values[single], ...[ahead, ...others].map((name) => values[name])];
  for (const name of off[switches.map((value) => Number(value ?? 0)).join("")]) if (!(name in settings)) values[name] = 0;
}

// Every parameter by name, as `shardmath explain` puts defaults in.
function valuesOf(state) {
  const part = partOf(state);
  const known = DATA.evaluators[part.evaluator];
  const values = { ...known.defaults, ...machineOf(state, known), ...known.machine, ...state.numbers, ...state.settings };
  for (const name of part.modes[state.recompute] ?? []) values[name] = 1;
  for (const [name, leader] of Object.entries(known.following)) if (!values[name]) values[name] = values[leader];
  if (values.tensor_parallel === 1) values.sequence_parallel = 0;
  switchOff(known, values, state.settings);
  values.data_parallel = dataParallel(values);
  values.pipeline_rank = 0;
  return values;
}

// The first rule that a layout breaks, with the field that it is about; undefined if it breaks none.
function brokenRule(evaluator, values) {
  const { num_gpus, tensor_parallel, context_parallel, pipeline_parallel } = values;
  if (!Number.isInteger(values.data_parallel))
    return { field: "num_gpus", value: num_gpus, rule: "must be a multiple of tensor_parallel * context_parallel * pipeline_parallel = "
      + `${tensor_parallel * context_parallel * pipeline_parallel}` };
  const broken = evaluator.rulesMet(values).indexOf(false);
  if (broken < 0) return undefined;
  const [, field, text] = evaluator.RULES[broken];
  return { field, value: values[field], rule: withNumbers(text, values) };
}

// A rule followed by the values of the parameters that it names.
function withNumbers(rule, values) {
  const named = Object.keys(DATA.parameters).filter((name) => rule.includes(name) && name in values);
  return named.length ? `${rule} (${named.map((name) => `${name} = ${values[name]}`).join(", ")})` : rule;
}

const said = ({ field, value, rule }) => `${field} = ${value}: ${rule}`;

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

// Bytes of a pipeline rank at a moment of the step: lines by term, sums by role.
function linesAt(evaluator, known, numbers, site) {
  const freed = known.sites[site]?.freed ?? [];
  const lines = [];
  const byRole = Object.fromEntries(DATA.roles.map((role) => [role, 0]));
  for (const [term, component, kind, moment = site] of known.lines) {
    const role = kind === site ? "transient" : kind;
    if (moment !== site || !(role in byRole) || numbers[term] === 0 || (role === "activation" && freed.includes(component))) continue;
    lines.push({ term, component, role, bytes: numbers[term] });
    byRole[role] += numbers[term];
  }
  for (const role of DATA.roles) byRole[role] = evaluator.whole(byRole[role]);
  lines.sort((left, right) => DATA.roles.indexOf(left.role) - DATA.roles.indexOf(right.role));
  return { lines, byRole };
}

// All that one pipeline rank keeps at its peak, in bytes.
function accountOf(state, values, rank) {
  const name = evaluatorName(state);
  const [evaluator, known] = [shardmath[name], DATA.evaluators[name]];
  const numbers = evaluator.terms({ ...values, pipeline_rank: rank });
  const site = siteOf(numbers, Object.keys(known.sites));
  const total = evaluator.whole(numbers["stage.total"]);
  const limits = evaluator.RANK_LIMITS.map((limit) => evaluator.whole(numbers[limit]));
  const verdict = evaluator.VERDICTS[evaluator.verdict(total, ...limits)][0];
  const rule = evaluator.VERDICTS[evaluator.rule80(total, values.gpu_memory)][0];
  return { rank, site, ...linesAt(evaluator, known, numbers, site), total, verdict, rule, limit: limits[0], numbers };
}

// The probability that the process of a rank runs out of memory.
function chanceOf(evaluator, { numbers }, memory) {
  const [allocated, process] = ["allocated", "total"].map((name) => evaluator.whole(numbers[`process.${name}`]));
  return evaluator.runOutProbability(allocated, process, memory);
}

function accountsOf(state, values) {
  return Array.from({ length: values.pipeline_parallel }, (_, rank) => accountOf(state, values, rank));
}

// The peak over all ranks and the number of its verdict, or what is wrong with the layout. What doubles cannot hold
// exactly is refused like a layout that breaks a rule.
function peakOf(evaluator, values) {
  try {
    const broken = brokenRule(evaluator, values);
    if (broken) return { broken: said(broken) };
    const { peak, limits } = evaluator.judgedOf(values);
    return { peak, verdict: evaluator.verdict(peak, ...limits) };
  } catch (error) {
    if (error instanceof RangeError) return { broken: error.message };
    throw error;
  }
}
