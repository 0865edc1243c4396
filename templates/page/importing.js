// Pasted text: a link, a config.json, settings of another program, or the flags of a launch script.
async function fromText(text) {
  const trimmed = text.trim();
  if (/^\S*#\S*=/.test(trimmed)) return { notes: noted(...(await fromAnyLink(trimmed)).map((refusal) => ["", [`Ignored: ${refusal}`]])), read: "link" };
  const stated = trimmed.startsWith("{") ? parsedJson(trimmed) : undefined;
  if (stated && ("model_type" in stated || "architectures" in stated)) return fromConfig(trimmed);
  return fromProgram(trimmed) ?? (stated ? fromConfig(trimmed) : fromFlags(trimmed));
}

// Keys of TOML or YAML with the names of the tables around them.
function keysOf(text) {
  const [keys, around] = [[], []];
  for (const line of text.split("\n")) {
    const [, section] = /^\s*\[([\w.]+)\]/.exec(line) ?? [];
    const [, space, key] = /^(\s*)(\w+)\s*(?:=|:(?=\s|$))/.exec(line) ?? [];
    if (section) {
      around.splice(0, around.length, [-1, section]);
      keys.push(section);
    }
    if (key === undefined) continue;
    while (around.length && around.at(-1)[0] >= space.length) around.pop();
    around.push([space.length, key]);
    keys.push(around.map(([, name]) => name).join("."));
  }
  return keys;
}

// The program whose signs the keys of a file are, the one with most of them.
function programOf(keys) {
  const has = (signs) => signs.every((sign) => keys.some((key) => key === sign || key.startsWith(`${sign}.`)));
  const marked = shardmath.readers.TABLES.formats.flatMap(({ title, signs }) => signs.filter(has).map((own) => [own.length, title]));
  return marked.reduce((most, item) => (item[0] > most[0] ? item : most), [0, ""])[1];
}

function parsedJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Unread(`This is no JSON: ${error.message}.`);
  }
}

class Unread extends Error {}

const NOT_UNDERSTOOD = "Not understood, ignored";
const LAUNCHED = "Of the launcher, without effect";
const IDLE = "Without effect on memory and time";
const COMMANDS_READ = "Ignored: read by shardmath explain, not by this page";

// Groups of what is not on the page, those that are empty left out.
function noted(...groups) {
  return groups.filter(([, items]) => items.length);
}

function asWritten(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

// A size within its limits.
function sizeOf(name, key, value, written) {
  if (legal(name, value)) return value;
  throw new Unread(`${outOfRange(name, asWritten(written), key)}.`);
}

// The model of a config.json, which the reader of the commands makes; a model of the page has the same formulas.
function fromConfig(text) {
  const { model, family, outer, remarks, idle } = configOf(text);
  const like = takeModel(model, `model_type = ${family}`, "shardmath explain ./config.json, or shardmath page ./config.json -o page.html");
  return { notes: noted(...remarks.map((remark) => ["", [remark]]), [IDLE, idle]), isModelAlone: true,
    read: `${family} model${outer === family ? "" : ` inside a ${outer} model`}, with the formulas of ${like.name}` };
}

// Choose the sizes of a model, and a model of the page with the same formulas.
function takeModel(model, shown, advice) {
  const { kernelsOf, modelOf } = shardmath.readers;
  const kernels = kernelsOf(model);
  const alike = ({ fields }) => kernelsOf(modelOf(fields)) === kernels;
  const like = [MODELS.get(model.name), ...MODELS.values()].find((known) => known && alike(known));
  if (!like) throw new Unread(`${shown}: must have the kernels of a model of this page. Use ${advice}.`);
  pick("model", like.name);
  for (const name of Object.keys(like.values)) state.numbers[name] = name in DATA.parameters ? sizeOf(name, name, Number(model[name]), model[name]) : Number(model[name]);
  settle();
  const usual = { ...DATA.fields, ...like.fields };
  const stated = JSON.parse(JSON.stringify(model));
  const other = DATA.config.unsized.filter((name) => JSON.stringify(stated[name]) !== JSON.stringify(usual[name] ?? null));
  state.file = Object.fromEntries(other.map((name) => [name, stated[name]]));
  return like;
}

const IN_PYTHON = { "torchtitan in Python": /^(?:from|import) torchtitan\b/m, "Megatron-Bridge in Python": /^(?:from|import) (?:megatron|nemo)\b/m };

// Settings of another program, which the readers of the commands read; what they lack is as on the page. Nothing for other texts.
function fromProgram(text) {
  const { readProgram, InputError, Unwritten } = shardmath.readers;
  const onPage = { model: state.model, seq_length: state.numbers.seq_length, micro_batch_size: state.numbers.micro_batch_size };
  let run;
  try {
    run = readProgram(text, onPage);
  } catch (error) {
    const isOfFlags = [...flagsOf(text).keys()].some((flag) => Object.values(DATA.flags.sizes).includes(flag));
    if (error instanceof InputError && !(isOfFlags && typeof error.value === "symbol")) throw new Unread(`${error.message}.`);
    if (!(error instanceof InputError || error instanceof Unwritten)) throw error;
    if (isOfFlags) return fromFlags(text, `Sizes alone are read: ${error.message}`);
    const program = programOf(keysOf(text)) || Object.keys(IN_PYTHON).find((name) => IN_PYTHON[name].test(text)) || "";
    if (program || text.startsWith("{")) throw new Unread(`A file${program && ` of ${program}`} with what this page does not read: ${asWritten(error.message)}; shardmath explain FILE --gpu ${state.gpu} reads it.`);
  }
  if (!run) return undefined;
  const like = takeModel(run.model, `model = ${run.model.name}`, `shardmath explain FILE --gpu ${state.gpu}`);
  const { rest, lacks } = takeRun(run);
  return { notes: noted(...[...run.warnings, ...run.remarks].map((warning) => ["", [warning]]), ["Not in the file, as on this page", [...run.lacks, ...lacks]], [NOT_UNDERSTOOD, run.unknown],
    [COMMANDS_READ, rest], [IDLE, run.without_effect]),
    read: `${run.understood.length} settings of ${run.title}, with the formulas of ${like.name}` };
}

// The command that makes a page of the chosen model with more kernels.
function pageCommand(kernels) {
  const model = MODELS.get(state.model).of_family ? "./config.json" : state.model;
  return `shardmath page ${model} --only ${kernels.map((item) => `--kernel ${item}`).join(" ")} -o page.html`;
}

// Choose what the arguments of a run say; what the page has not, and what they leave to the page.
function takeRun(run) {
  const [given, replica] = [run.arguments, run.replica_batch];
  const { kernels = new Map(), implementation, recompute, schedule, gradients, zero_stage: stage, data_parallel: data, ...sizes } = Object.fromEntries(given);
  const rest = [];
  pick("implementation", implementation);
  if (state.implementation !== implementation) throw new Unread(`${implementation}: must have a model with the layers of ${state.model}.`);
  for (const [name, word] of Object.entries({ schedule, recompute })) {
    if (word === undefined) continue;
    if (optionsOf(name).includes(word)) pick(name, word);
    else rest.push(`${name} = ${word}`);
  }
  const usual = { ...DATA.kernels_of[implementation], ...DATA.evaluators[evaluatorName({ ...state, kernels: {} })].choices };
  const changed = [...kernels].filter(([axis, option]) => usual[axis] !== option);
  const named = changed.map(([axis, option]) => `${axis}=${option}`);
  const isThere = !named.length || kernelKeys(state).includes(kernelKey(Object.fromEntries(changed)));
  if (!isThere && run.title === "Megatron-LM") rest.push(...named);
  else if (!isThere) throw new Unread(`${named.join(", ")}: must be kernels whose formulas this page has together; it has few. Type shardmath explain FILE --gpu ${state.gpu}, or make a page with them: `
      + `${pageCommand(named)}.`);
  state.kernels = isThere ? Object.fromEntries(changed) : {};
  settle();
  const switches = ["distributed_optimizer", "sharded_gradients", "sharded_weights"].map((name, place) => [name, Number(stage > place)]);
  const bytes = { fp32: 4, bf16: 2 }[gradients];
  const settings = [...Object.entries(sizes), ...(stage === undefined ? [] : switches), ...(bytes ? [["gradient_bytes", bytes]] : [])];
  for (const [name, value] of settings) {
    if (name in state.numbers) pick(name, sizeOf(name, name, Number(value), value));
    else if (isSetting(name) && legal(name, Number(value))) set(name, Number(value));
    else if (DATA.evaluators[evaluatorName(state)].fixed[name] !== Number(value)) rest.push(`${name} = ${value}`);
  }
  const ranks = state.numbers.tensor_parallel * state.numbers.context_parallel * state.numbers.pipeline_parallel;
  if (data) pick("num_gpus", sizeOf("num_gpus", "num_gpus", data * ranks, data * ranks));
  const batch = given.get("global_batch_size") ?? (replica === null ? undefined : replica * Math.max(1, Math.floor(state.numbers.num_gpus / ranks)));
  if (batch !== undefined) pick("global_batch_size", sizeOf("global_batch_size", "global_batch_size", batch, batch));
  return { rest, lacks: [...(data || "num_gpus" in sizes ? [] : ["num_gpus"]), ...(batch === undefined ? ["global_batch_size"] : [])] };
}

function configOf(text) {
  const { readConfig, InputError } = shardmath.readers;
  try {
    return readConfig(text);
  } catch (error) {
    if (error instanceof InputError) throw new Unread(`${error.message}.`);
    throw error;
  }
}

// The flags of a text with the words after each; comments and the signs of the shell are no words.
function flagsOf(text) {
  const flags = new Map();
  let name;
  for (const word of text.replace(/(^|\s)#.*$/gm, "").replace(/\\\s*$/gm, " ").split(/[\s"';()]+/)) {
    const flag = /^(?:\w+\+?=)?--([A-Za-z][\w-]*)(?:=(.*))?$/.exec(word);
    if (flag) {
      name = flag[1];
      flags.set(name, flag[2] ? [flag[2]] : []);
    } else if (word && name) flags.get(name).push(word);
  }
  return flags;
}

// Flags of Megatron-LM by the parameters that they set; each of the others is named, or refused where the commands do.
function fromFlags(text, ...remarks) {
  const { sizes, switches, modules, elsewhere, idle, launcher, uncounted, refused, off, programs } = DATA.flags;
  const flags = flagsOf(text);
  const known = Object.entries(sizes).filter(([, flag]) => flags.has(flag));
  if (!known.length) throw new Unread("Nothing here is a link, a config.json, a flag of Megatron-LM or a setting of a program named above.");
  const program = Object.keys(programs).find((name) => text.includes(name));
  if (program) throw new Unread(`${program}: must train a GPT: ${programs[program]} is not counted yet.`);
  const isOff = (flag) => flags.get(flag).length === 1 && off.includes(flags.get(flag)[0].toLowerCase());
  for (const [flag, why] of Object.entries(refused))
    if (flags.has(flag) && !isOff(flag)) throw new Unread(`--${flag}: must not be given: ${why}.`);
  pick("implementation", "megatron");
  const shown = (flag) => [`--${flag}`, ...flags.get(flag)].join(" ");
  const taken = new Set([...Object.values(switches), "recompute-granularity", "recompute-activations"]);
  const withoutValue = [];
  for (const [name, flag] of known) {
    const word = flags.get(flag)[0];
    if (!(name in state.numbers && name in DATA.parameters)) continue;
    taken.add(flag);
    if (word === undefined || word.startsWith("$")) withoutValue.push(shown(flag));
    else pick(name, sizeOf(name, `--${flag}`, Number(word), word));
  }
  for (const [name, flag] of Object.entries(switches)) if (name in state.numbers) pick(name, Number(flags.has(flag)));
  takeRecompute(flags, modules, taken);
  takeProcesses(flags, launcher.sizes, taken);
  const left = [...flags.keys()].filter((flag) => !taken.has(flag));
  const without = (names) => left.filter((flag) => names.includes(flag)).map(shown);
  const rest = left.filter((flag) => !launcher.flags.includes(flag) && !idle.includes(flag));
  const [named, unknown] = [[], []];
  const said = rest.filter((flag) => flag in uncounted && !isOff(flag)).map((flag) => `${shown(flag)} (${uncounted[flag]})`);
  for (const flag of rest.filter((item) => !(item in uncounted) && !(item in refused)))
    (elsewhere.includes(flag) ? named : unknown).push(shown(flag));
  return { notes: noted(...remarks.map((remark) => ["", [remark]]), ["Without a value, ignored", withoutValue], [NOT_UNDERSTOOD, unknown], ["Not counted yet", said], [COMMANDS_READ, named],
    [LAUNCHED, without(launcher.flags)], [IDLE, without(idle)]),
    read: `${known.length} sizes of Megatron-LM, with the formulas of ${state.model}` };
}

// Recompute as the page has it; modules that it has not together are left to be named.
function takeRecompute(flags, modules, taken) {
  const granularity = flags.has("recompute-activations") ? "selective" : flags.get("recompute-granularity")?.[0];
  const asked = granularity === "selective" ? (flags.get("recompute-modules") ?? ["core_attn"]).map((name) => modules[name]) : [granularity];
  const same = (option) => option.split("+").sort().join() === [...asked].sort().join();
  pick("recompute", granularity === "full" || granularity === "selective" ? optionsOf("recompute").find(same) ?? "none" : "none");
  if (granularity === "selective" && same(state.recompute)) taken.add("recompute-modules");
  else if (granularity === "selective") taken.delete("recompute-granularity");
}

// GPUs of the job: processes of all nodes, where the launcher says both.
function takeProcesses(flags, sizes, taken) {
  const stated = sizes.map((names) => names.find((name) => flags.has(name)));
  const words = stated.map((name) => flags.get(name)?.[0] ?? "");
  if (!words.every((word) => /^[1-9]\d{0,6}$/.test(word))) return;
  pick("num_gpus", sizeOf("num_gpus", `--${stated.join(" x --")}`, Number(words[0]) * Number(words[1]), words.join(" x ")));
  for (const name of stated) taken.add(name);
}

async function takePasted() {
  const before = structuredClone(state);
  delete document.documentElement.dataset.ready;
  try {
    await loadReaders();
    const { notes, read, isModelAlone = false } = await fromText(byId("pasted").value);
    byId("unread").textContent = "";
    byId("importer").close();
    await update();
    notice(`Read: ${read}.`, notes);
    if (isModelAlone) await placeSoon(`Read: ${read}.`, notes);
  } catch (error) {
    if (!(error instanceof Unread)) throw error;
    state = before;
    byId("unread").textContent = error.message;
    document.documentElement.dataset.ready = "";
  }
}

// A model alone says nothing of a layout: it gets the first of those that a search finds, unless something is chosen before.
let placing;

async function placeSoon(text, notes) {
  placing = { link: toLink(), text, notes };
  if (byId("best").getAttribute("aria-busy") === "false") return place();
  notice(`${text} Its layout follows from the search below.`, notes);
  return undefined;
}

async function place() {
  const [asked, entry] = [placing, ranked.fastest[0] ?? ranked.nearest[0]];
  placing = undefined;
  if (!asked || asked.link !== toLink()) return;
  const said = ranked.fastest.length ? "Its layout is the fastest that fits." : "No layout fits: this is the one of least memory.";
  if (entry) takeOver(entry);
  if (entry) await update();
  notice(entry ? `${asked.text} ${said}` : asked.text, asked.notes);
}
