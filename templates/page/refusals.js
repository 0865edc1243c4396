// A choice that is refused, in the words of the commands: field, value, rule and nearest legal value. The search for the
// nearest ones and the names that people mean are those of the commands, translated; they are loaded when they are needed.

// A text that is no legal number of a parameter.
function outOfRange(name, text, key = written(name, 0)[0]) {
  const [start, end] = DATA.parameters[name].limits.map((limit) => written(name, limit)[1]);
  const meant = text === "" ? NaN : Number(text);
  const nearest = Number.isNaN(meant) ? "" : `; nearest legal: ${Math.min(Math.max(formOf(name).round(meant), start), end)}`;
  return `${key} = ${text || "nothing"}: must be ${formOf(name).rule} from ${start} to ${end}${nearest}`;
}

// Arguments of the commands for what is chosen; those that the program leaves no choice are not said.
function argumentsOf(own) {
  const { fixed } = DATA.evaluators[evaluatorName(own)];
  const names = [...JOB.slice(0, 3), ...LAYOUT, ...[...STAGES, ...SWITCHES.slice(1)].filter((name) => own.numbers[name])];
  const numbers = names.filter((name) => name in DATA.parameters && !(name in fixed) && own.numbers[name]).map((name) => [name, own.numbers[name]]);
  return { ...Object.fromEntries(numbers), ...("sequence_parallel" in fixed ? {} : { sequence_parallel: Boolean(own.numbers.sequence_parallel) }),
    recompute: own.recompute, ...own.settings };
}

// Numbers of the job that a search leaves open, as the commands choose them: the fewest GPUs, and a batch that fills the pipeline.
function fillOpen({ numbers, settings, schedule }, open) {
  if (open.includes("num_gpus")) numbers.num_gpus = numbers.tensor_parallel * numbers.context_parallel * numbers.pipeline_parallel;
  const values = new Map(Object.entries({ ...numbers, ...settings, data_parallel: dataParallel(numbers) }));
  if (open.includes("global_batch_size")) numbers.global_batch_size = shardmath.refusals.fillingBatch(values, schedule);
}

// The refusal of what is chosen with some arguments changed; nothing where it is legal.
function refusedWith(changes) {
  const own = { ...state, numbers: { ...state.numbers }, settings: { ...state.settings } };
  const open = [...changes].filter(([, value]) => value === null).map(([name]) => name);
  for (const [name, value] of changes) {
    if (open.includes(name)) continue;
    if (name in own.numbers) own.numbers[name] = Number(value);
    else if (name === "recompute") own.recompute = value;
    else if (isSetting(name)) own.settings[name] = value;
    else return { field: name, value, rule: "must be as usual" };
  }
  fillOpen(own, open);
  const { fixed } = DATA.evaluators[evaluatorName(own)];
  const stuck = [...LAYOUT, ...STAGES, ...SWITCHES].find((name) => name in fixed && own.numbers[name] !== fixed[name]);
  if (stuck) return { field: stuck, value: own.numbers[stuck], rule: `must be ${fixed[stuck]}` };
  if (!(own.recompute in partOf(own).modes)) return { field: "recompute", value: own.recompute, rule: "must be one of this page" };
  if (!shardmath[evaluatorName(own)]) return { field: "schedule", value: own.schedule, rule: "must be the chosen one" };
  const { broken, refusal } = examined(own);
  return broken && (refusal ?? { field: "num_gpus", value: own.numbers.num_gpus, rule: broken });
}

// The error of the commands for a refusal, with the nearest legal values.
function withNearest({ field, value, rule }) {
  const { InputError, asAsked, nearestLegal } = shardmath.refusals;
  const given = new Map(Object.entries(argumentsOf(state)));
  const asked = asAsked(new InputError(field, value, rule), given);
  const refused = (changes) => {
    const refusal = refusedWith(changes);
    return refusal ? new InputError(refusal.field, refusal.value, refusal.rule) : null;
  };
  return new InputError(asked.field, asked.value, asked.rule, nearestLegal(asked, given, refused));
}

// The nearest legal values are sought a moment after the last change: a slider that moves asks for many.
let seeking;
function showNearestSoon(refusal) {
  seeking = setTimeout(async () => {
    const own = updates;
    await load("refusals");
    if (own !== updates || !byId("nearest")) return;
    const { message, nearest } = withNearest(refusal);
    byId("broken").textContent = `${message.replace(/; nearest legal: .*/, "")}.`;
    byId("nearest").textContent = nearest ? `Nearest legal: ${nearest}.` : "No value near these is legal.";
    byId("announced").textContent = `Not a layout: ${message}.`;
  }, CALM);
}

// Take over what a link says, also in names that the commands take for those of the page; returns what is refused, in words.
async function fromAnyLink(link) {
  if (!fromLink(link).length) return [];
  await load("refusals");
  return fromLink(meantLink(link)).map(refusalOfPart);
}

function meantLink(link) {
  const asked = new URLSearchParams(link.replace(/^[^#]*#?/, ""));
  return `#${new URLSearchParams([...asked].map(([key, value]) => meantPart(longName(key), value)))}`;
}

// The parameter that `tp`, `gpus` or `micro-batch-size` stands for.
function longName(key) {
  const name = key.replaceAll("-", "_");
  const { TYPED } = shardmath.refusals;
  return Object.keys(TYPED).find((long) => TYPED[long] === name) ?? name;
}

const NAMED = {
  model: (text) => shardmath.refusals.modelCalled(text, new Map([...MODELS.values()].filter((model) => !model.of_family).map(({ name }) => [name, name]))),
  gpu: (text) => calledLike("gpu", "GPU", text, [...GPUS.keys()]),
  network: (text) => calledLike("network", "network", text, [...GPUS.values()].flatMap(({ networks }) => Object.keys(networks))),
};

function calledLike(field, noun, text, names) {
  const { byName, IGNORED } = shardmath.refusals;
  return byName(field, noun, text, new Map(names.map((name) => [name, name])), IGNORED[field]);
}

// A part of a link as the page writes it, or as it is where nothing of the page is meant.
function meantPart(key, value) {
  const sorted = (text) => text.split("+").sort().join();
  try {
    if (key === "against") return [key, meantLink(`#${value}`).slice(1)];
    if (key === "kernel") return [key, kernelKey(kernelsOfKey(value))];
    if (key === "recompute") return [key, DATA.parts.flatMap(({ modes }) => Object.keys(modes)).find((mode) => sorted(mode) === sorted(value)) ?? value];
    return [key, key in NAMED && value !== USUAL ? NAMED[key](value) : value];
  } catch (error) {
    if (!(error instanceof shardmath.refusals.InputError)) throw error;
    return [key, value];
  }
}

// Why a part of a link is refused.
function refusalOfPart(part) {
  const [key, ...rest] = part.split("=");
  const text = rest.join("=");
  const { InputError, nearestNames } = shardmath.refusals;
  const name = key === PRICE ? CENTS : key;
  if (name in NAMED) {
    try {
      NAMED[name](text);
    } catch (error) {
      return error.message;
    }
  }
  if (CHOSEN.includes(name)) return new InputError(key, text, `must be one that ${state.model} has here`, nearestNames(text, optionsOf(name))).message;
  if (key === "kernel") return new InputError(key, text, "must be kernels whose formulas this page has together").message;
  if (name in DATA.parameters && (name in state.numbers || isSetting(name))) return outOfRange(name, text);
  const known = [...CHOSEN, ...Object.keys(state.numbers), PRICE, "kernel"];
  const rule = known.includes(key) || ["file", "rank", "against"].includes(key) ? "must be as the page writes it" : "must be a parameter of this page";
  return new InputError(key, text, rule).message;
}
