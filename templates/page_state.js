// What is chosen: its controls, and the link that holds it.
const POWERS = (most) => Array.from({ length: Math.log2(most) + 1 }, (_, place) => 2 ** place);
const STEPS = (step, most) => Array.from({ length: most / step }, (_, place) => step * (place + 1));
// Candidates of every slider; a number that is typed may be another.
const CANDIDATES = {
  num_gpus: () => [...POWERS(16384), ...POWERS(512).map((power) => 24 * power)],
  global_batch_size: () => POWERS(16384),
  seq_length: () => POWERS(2 ** 20).slice(9),
  tensor_parallel: (numbers) => divisors(numbers.num_attention_heads),
  context_parallel: () => POWERS(128),
  pipeline_parallel: (numbers) => divisors(numbers.num_layers),
  expert_parallel: (numbers) => divisors(Math.max(1, numbers.num_experts)),
  micro_batch_size: () => POWERS(64),
  num_layers: () => STEPS(1, 160),
  hidden_size: () => STEPS(256, 32768),
  ffn_hidden_size: () => STEPS(256, 65536),
  num_attention_heads: () => STEPS(1, 192),
  num_kv_heads: (numbers) => divisors(numbers.num_attention_heads),
  head_dim: () => STEPS(16, 256),
  vocab_size: () => STEPS(1000, 256000),
};
const JOB = ["num_gpus", "global_batch_size", "seq_length"];
const LAYOUT = ["tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel", "micro_batch_size"];
const SHAPE = Object.keys(CANDIDATES).slice(JOB.length + LAYOUT.length);
const AXES = [...LAYOUT, ...JOB];

const START = {
  model: DATA.start, gpu: "h100-80gb", implementation: "megatron", recompute: "none", across: "tensor_parallel",
  down: "pipeline_parallel", term: "stage.total", rank: -1,
};
const START_NUMBERS = {
  num_gpus: 512, global_batch_size: 1024, seq_length: 8192, tensor_parallel: 8, context_parallel: 1,
  pipeline_parallel: 4, expert_parallel: 1, micro_batch_size: 1, sequence_parallel: 1,
};
const state = { ...START, numbers: {} };

function optionsOf(name) {
  if (name === "model") return [...MODELS.keys()];
  if (name === "gpu") return [...GPUS.keys()];
  if (name === "implementation") return Object.keys(MODELS.get(state.model).evaluators);
  if (name === "across" || name === "down") return axes();
  if (name === "term") return Object.keys(DATA.formulas[evaluatorName(state)]);
  const { fixed } = DATA.evaluators[evaluatorName(state)];
  const possible = (switches) => Object.keys(switches).every((one) => !(one in fixed) || switches[one] === fixed[one]);
  return Object.keys(DATA.modes).filter((mode) => possible(DATA.modes[mode]));
}

function axes() {
  const { fixed } = DATA.evaluators[evaluatorName(state)];
  return AXES.filter((name) => !(name in fixed));
}

function legal(name, value) {
  const [least, most] = DATA.parameters[name].limits;
  return Number.isInteger(value) && least <= value && value <= most;
}

// Bring choices that depend on others in line: an implementation that the model has, sizes that it can change.
function settle() {
  for (const name of ["implementation", "recompute", "across", "down", "term"]) {
    const options = optionsOf(name);
    if (!options.includes(state[name])) state[name] = options.includes(START[name]) ? START[name] : options[0];
  }
  if (state.across === state.down) state.down = axes().find((name) => name !== state.across);
  const { fixed } = DATA.evaluators[evaluatorName(state)];
  for (const name of [...LAYOUT, "sequence_parallel"]) if (name in fixed) state.numbers[name] = fixed[name];
}

function choose(name, value) {
  if (name === "model") Object.assign(state.numbers, MODELS.get(value).values);
  if (name in state.numbers) state.numbers[name] = value;
  else state[name] = value;
  settle();
}

function toLink() {
  const asked = new URLSearchParams();
  for (const name of Object.keys(START)) if (name === "model" || state[name] !== START[name]) asked.set(name, state[name]);
  const usual = { ...START_NUMBERS, ...MODELS.get(state.model).values };
  for (const name of Object.keys(usual)) if (state.numbers[name] !== usual[name]) asked.set(name, state.numbers[name]);
  return `#${asked}`;
}

// Take over what a link says; returns the parts of it that say nothing.
function fromLink(link) {
  const asked = new Map(new URLSearchParams(link.slice(1)));
  const ignored = [];
  const take = (name, known, value) => {
    if (asked.has(name) && !known) ignored.push(`${name}=${asked.get(name)}`);
    else if (asked.has(name)) choose(name, value);
    asked.delete(name);
  };
  Object.assign(state, START);
  state.numbers = { ...START_NUMBERS, ...MODELS.get(START.model).values };
  for (const name of ["model", "gpu", "implementation", "recompute", "across", "down", "term"])
    take(name, asked.has(name) && optionsOf(name).includes(asked.get(name)), asked.get(name));
  take("rank", /^\d+$/.test(asked.get("rank")), Number(asked.get("rank")));
  for (const name of Object.keys(state.numbers)) {
    const text = asked.get(name);
    take(name, /^\d+$/.test(text) && legal(name, Number(text)), Number(text));
  }
  settle();
  return [...ignored, ...[...asked].map((pair) => pair.join("="))];
}
