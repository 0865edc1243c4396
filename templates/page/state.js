// The state: its options and candidates, and the link that holds it.
const POWERS = (most) => Array.from({ length: Math.log2(most) + 1 }, (_, place) => 2 ** place);
const STEPS = (step, most) => Array.from({ length: most / step }, (_, place) => step * (place + 1));
const ascending = (...lists) => [...new Set(lists.flat())].sort((left, right) => left - right);
// Candidates of every slider; a number that is typed may be another.
const CANDIDATES = {
  num_gpus: () => [...POWERS(16384), ...POWERS(512).map((power) => 24 * power)],
  global_batch_size: () => POWERS(16384),
  seq_length: () => POWERS(2 ** 20).slice(9),
  cents_per_gpu_hour: () => [0, ...STEPS(10, 1000)],
  tensor_parallel: (numbers) => divisors(numbers.num_attention_heads),
  context_parallel: () => POWERS(128),
  pipeline_parallel: (numbers) => ascending(divisors(numbers.num_layers),
    divisors(numbers.num_gpus).filter((size) => size <= numbers.num_layers)), // stages may differ in layers
  virtual_pipeline: (numbers) => divisors(Math.max(1, Math.floor(numbers.num_layers / numbers.pipeline_parallel))),
  expert_parallel: (numbers) => divisors(Math.max(1, numbers.num_experts)),
  expert_tensor_parallel: () => [0, ...POWERS(16)],
  micro_batch_size: () => POWERS(64),
  first_stage_layers: (numbers) => [0, ...STEPS(1, numbers.num_layers)],
  last_stage_layers: (numbers) => [0, ...STEPS(1, numbers.num_layers)],
  num_layers: () => STEPS(1, 160),
  hidden_size: () => STEPS(256, 32768),
  ffn_hidden_size: () => STEPS(256, 65536),
  num_attention_heads: () => STEPS(1, 192),
  num_kv_heads: (numbers) => divisors(numbers.num_attention_heads),
  head_dim: () => STEPS(16, 256),
  vocab_size: () => STEPS(1000, 256000),
  num_experts: () => [0, ...POWERS(512)],
  moe_topk: (numbers) => [0, ...STEPS(1, Math.max(1, numbers.num_experts))],
  moe_ffn_hidden_size: () => [0, ...STEPS(128, 32768)],
};
// Formulas have the price of a GPU-hour in hundredths of the currency; people and links have it as `--price`.
const [PRICE, CENTS] = ["price", "cents_per_gpu_hour"];
const JOB = ["num_gpus", "global_batch_size", "seq_length", "cents_per_gpu_hour"];
const LAYOUT = ["tensor_parallel", "context_parallel", "pipeline_parallel", "virtual_pipeline", "expert_parallel",
  "expert_tensor_parallel", "micro_batch_size"];
const STAGES = ["first_stage_layers", "last_stage_layers"];
const SWITCHES = ["sequence_parallel", "account_for_embedding", "account_for_loss"];
const SHAPE = Object.keys(CANDIDATES).slice(JOB.length + LAYOUT.length + STAGES.length);
const AXES = [...LAYOUT, ...JOB.slice(0, 3)];
// Controls that a program may lack: those are hidden, all others stay.
const PERHAPS = ["virtual_pipeline", "expert_parallel", "expert_tensor_parallel", ...STAGES, ...SWITCHES.slice(1),
  "num_experts", "moe_topk", "moe_ffn_hidden_size"];

const USUAL = "usual"; // the network of the GPU's vendor
const CHOSEN = ["model", "implementation", "gpu", "network", "risk", "schedule", "recompute", "across", "down"];
let START;
const START_NUMBERS = {
  num_gpus: 512, global_batch_size: 1024, seq_length: 8192, cents_per_gpu_hour: 0, tensor_parallel: 8,
  context_parallel: 1, pipeline_parallel: 4, virtual_pipeline: 1, expert_parallel: 1, expert_tensor_parallel: 0,
  micro_batch_size: 1, sequence_parallel: 1, first_stage_layers: 0, last_stage_layers: 0, account_for_embedding: 0,
  account_for_loss: 0,
};
let state = { numbers: {}, settings: {}, kernels: {}, file: {} };
let kept; // the layout that it is compared with

function startOf(model) {
  START = { model, gpu: "h100-80gb", network: USUAL, risk: Object.keys(DATA.risks)[0],
    implementation: MODELS.get(model).implementation, schedule: "1f1b", recompute: "none", across: "tensor_parallel", down: "pipeline_parallel", rank: -1 };
  return { ...START, numbers: { ...START_NUMBERS, ...MODELS.get(model).values }, settings: {}, kernels: {}, file: {} };
}

function schedulesOf(chosen) {
  const staged = partsOf(chosen).filter((part) => hasPipeline(part).staged);
  return [...new Set(staged.map((part) => part.schedule))];
}

function optionsOf(name) {
  if (name === "model") return [...MODELS.values()].filter((model) => !model.of_family || model.name === state.model).map((model) => model.name);
  if (name === "gpu") return [...GPUS.keys()];
  if (name === "network") return [USUAL, ...Object.keys(GPUS.get(state.gpu).networks)];
  if (name === "risk") return Object.keys(DATA.risks);
  if (name === "implementation") return Object.keys(MODELS.get(state.model).parts);
  if (name === "schedule") return schedulesOf(state);
  if (name === "across" || name === "down") return axes();
  const able = partsOf(state).filter((part) => part.schedule === partOf(state).schedule || state.numbers.pipeline_parallel === 1);
  return [...new Set(able.flatMap((part) => Object.keys(part.modes)))];
}

function isFixed(name) {
  const known = DATA.evaluators[evaluatorName(state)];
  const own = DATA.parameters[name] !== undefined && shardmath[evaluatorName(state)]?.INPUTS.includes(name);
  return name in known.fixed || (PERHAPS.includes(name) && own === false);
}

function axes() {
  const { fixed } = DATA.evaluators[evaluatorName(state)];
  return AXES.filter((name) => !(name in fixed || (name === "virtual_pipeline" && fixed.pipeline_parallel === 1)));
}

function legal(name, value) {
  const { words } = DATA.settings;
  if (name in words) return Object.values(words[name].values).includes(value);
  const [least, most] = DATA.parameters[name].limits;
  const none = name === "expert_tensor_parallel" && value === 0;
  return none || (Number.isInteger(value) && least <= value && value <= most);
}

// Bring choices that depend on others in line: an implementation that the model has, sizes that it can change.
function settle() {
  for (const name of CHOSEN.slice(1)) {
    const options = optionsOf(name);
    if (!options.includes(state[name])) state[name] = options.includes(START[name]) ? START[name] : options[0];
    if (name === "implementation" && !kernelKeys(state).includes(kernelKey(state.kernels))) state.kernels = {};
  }
  if (state.across === state.down) state.down = axes().find((name) => name !== state.across);
  const { fixed } = DATA.evaluators[evaluatorName(state)];
  for (const name of [...LAYOUT, ...STAGES, ...SWITCHES]) if (name in fixed) state.numbers[name] = fixed[name];
  for (const name of Object.keys(state.settings)) if (!isSetting(name)) delete state.settings[name];
}

// Rarely changed parameters of the chosen program; without a value of its own each has the usual one.
function isSetting(name) {
  return DATA.evaluators[evaluatorName(state)].settings.includes(name);
}

// A rank of adapters where none was chosen, that of TRL.
const LORA_RANK = 16;
function haveRank() {
  if ("adapters" in state.kernels && !state.settings.lora_rank) set("lora_rank", LORA_RANK);
}

// Choose the kernel of an axis, the usual one without an option. Of the combinations that the page has with it, the nearest
// to what was chosen is taken. Returns the axes that are usual again, and the kernels that came with this one.
function pickKernel(axis, option) {
  const { [axis]: before, ...others } = state.kernels;
  const wished = option ? { ...others, [axis]: option } : others;
  const without = (kernels, rest) => Object.keys(kernels).filter((name) => rest[name] !== kernels[name]);
  const known = ["", ...kernelKeys(state)].map(kernelsOfKey).filter((kernels) => (kernels[axis] ?? "") === option);
  const distance = (kernels) => without(kernels, wished).length + without(wished, kernels).length;
  state.kernels = known.reduce((nearest, kernels) => (distance(kernels) < distance(nearest) ? kernels : nearest));
  settle();
  haveRank();
  return { dropped: without(wished, state.kernels), added: without(state.kernels, wished) };
}

function set(name, value) {
  if (value === undefined) delete state.settings[name];
  else state.settings[name] = value;
}

function pick(name, value) {
  const wasFixed = "expert_tensor_parallel" in DATA.evaluators[evaluatorName(state)].fixed;
  if (name === "model") Object.assign(state.numbers, MODELS.get(value).values);
  if (name === "model") state.file = {};
  if (name in state.numbers) state.numbers[name] = value;
  else state[name] = value;
  if (name === "model" || name === "implementation") { // what the one before could not change is as usual again
    state.schedule = START.schedule;
    if (wasFixed) state.numbers.expert_tensor_parallel = START_NUMBERS.expert_tensor_parallel;
  }
  settle();
}

// A layout that was found, with the job that it was found for.
function takeOver({ values, labels, part }) {
  for (const name of [...LAYOUT, ...STAGES, ...SWITCHES]) if (name in values) state.numbers[name] = values[name];
  Object.assign(state, { recompute: labels.recompute, schedule: part.schedule, rank: -1 });
  settle();
}

// How people write a number: its name and value, what is read from their text (NaN if it is none), the rule for it, its
// field, and its unit where the name does not say it.
const INTEGER = {
  written: (name, value) => [name, value], read: Number, round: Math.round, rule: "an integer", field: { inputmode: "numeric", step: 1 },
  unitOf: (name) => ` ${DATA.parameters[name].unit}`,
};
const MONEY = {
  written: (name, value) => [PRICE, value / 100], rule: "a number with at most two decimals", round: (number) => Math.round(100 * number) / 100,
  read: (text) => (/^[$€£]?\d+(\.\d{1,2})?$/.test(text) ? Math.round(100 * text.replace(/^\D/, "")) : NaN),
  field: { inputmode: "decimal", step: 0.01 }, unitOf: () => "",
};
const formOf = (name) => (name === CENTS ? MONEY : INTEGER);
const written = (name, value) => formOf(name).written(name, value);

function toLink(chosen = state) {
  const asked = new URLSearchParams();
  if (kept && chosen === state) asked.set("against", toLink(kept).slice(1));
  const own = { ...START, implementation: MODELS.get(chosen.model).implementation };
  if (schedulesOf(chosen).length < 2) own.schedule = chosen.schedule;
  const { fixed } = DATA.evaluators[evaluatorName(chosen)];
  for (const name of Object.keys(own)) if (name === "model" || chosen[name] !== own[name]) asked.set(name, chosen[name]);
  const usual = { ...START_NUMBERS, ...MODELS.get(chosen.model).values };
  for (const name of Object.keys(usual)) if (chosen.numbers[name] !== usual[name] && !(name in fixed)) asked.set(...written(name, chosen.numbers[name]));
  if (Object.keys(chosen.kernels).length) asked.set("kernel", kernelKey(chosen.kernels));
  for (const [name, value] of Object.entries(chosen.settings)) asked.set(name, value);
  if (Object.keys(chosen.file).length) asked.set("file", JSON.stringify(chosen.file));
  return `#${asked}`;
}

// The link follows a moment after the last change: a browser takes longer to write it than the page to show all numbers.
const LINK_REST = 250; // milliseconds
let linking;
function writeLink() {
  clearTimeout(linking);
  history.replaceState(null, "", toLink());
}

function writeLinkSoon() {
  clearTimeout(linking);
  linking = setTimeout(writeLink, LINK_REST);
}

// Read the figures of a pasted config.json that are no sizes, for files that are written. Anybody may send a link: words are refused.
function fileOf(text) {
  const isPlain = (value) => value === null || Number.isFinite(value) || /^[a-z0-9]{1,9}$/.test(value);
  try {
    const file = JSON.parse(text);
    const isFigure = (name, value) => (name === "rope_scaling" && value ? Object.values(value).every(isPlain) : value === null || Number.isFinite(value));
    return Object.entries(file).every(([name, value]) => DATA.config.unsized.includes(name) && isFigure(name, value)) ? file : undefined;
  } catch {
    return undefined;
  }
}

// Take over what a link says; returns the parts of it that say nothing. Numbers come first: which orders of passes and
// which recompute there are depends on them.
function fromLink(link) {
  const asked = new Map(new URLSearchParams(link.replace(/^[^#]*#?/, "")));
  const linked = new Set(asked.keys());
  const ignored = [];
  const take = (key, known, value, name = key) => {
    if (asked.has(key) && !known) ignored.push(`${key}=${asked.get(key)}`);
    else if (asked.has(key)) pick(name, value);
    asked.delete(key);
  };
  const isFamily = (name) => name === "model" && MODELS.get(asked.get(name))?.of_family; // as a pasted file left it
  const takeOption = (name) => take(name, asked.has(name) && (isFamily(name) || optionsOf(name).includes(asked.get(name))), asked.get(name));
  kept = undefined;
  if (asked.has("against") && !asked.get("against").includes("against=")) {
    ignored.push(...fromLink(`#${asked.get("against")}`));
    kept = structuredClone(state);
    asked.delete("against");
  }
  state = startOf(DATA.start);
  takeOption("model");
  if (!asked.has("implementation")) state.implementation = MODELS.get(state.model).implementation;
  takeOption("implementation");
  if (kernelKeys(state).includes(asked.get("kernel"))) {
    state.kernels = kernelsOfKey(asked.get("kernel"));
    asked.delete("kernel");
  }
  if (asked.has("file") && fileOf(asked.get("file"))) {
    state.file = fileOf(asked.get("file"));
    asked.delete("file");
  }
  for (const name of Object.keys(state.numbers)) {
    const text = asked.get(name);
    take(name, /^\d+$/.test(text) && legal(name, Number(text)), Number(text));
  }
  const price = MONEY.read(asked.get(PRICE) ?? "");
  take(PRICE, legal(CENTS, price), price, CENTS);
  CHOSEN.slice(2).forEach(takeOption);
  for (const name of Object.values(DATA.settings.groups).flat())
    if (asked.has(name) && /^-?\d+$/.test(asked.get(name)) && isSetting(name) && legal(name, Number(asked.get(name)))) {
      set(name, Number(asked.get(name)));
      asked.delete(name);
    }
  if (!linked.has("lora_rank")) haveRank();
  take("rank", /^\d+$/.test(asked.get("rank")), Number(asked.get("rank")));
  settle();
  return [...ignored, ...[...asked].map((pair) => pair.join("="))];
}
