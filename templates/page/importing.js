// Pasted text: a link, a config.json, or the flags of a launch script.
function fromText(text) {
  const trimmed = text.trim();
  if (/^\S*#\S*=/.test(trimmed)) return { notes: noted(["Ignored", fromLink(trimmed)]), read: "link" };
  if (trimmed.startsWith("{")) return fromConfig(trimmed);
  const program = programOf(keysOf(trimmed));
  if (program) throw otherProgram(program);
  return fromFlags(trimmed);
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

// Keys of JSON, by the same names.
function keysInside(value, before = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return [];
  return Object.entries(value).flatMap(([key, item]) => [`${before}${key}`, ...keysInside(item, `${before}${key}.`)]);
}

// The program whose signs the keys of a file are, the one with most of them.
function programOf(keys) {
  const has = (signs) => signs.every((sign) => keys.some((key) => key === sign || key.startsWith(`${sign}.`)));
  const marked = Object.entries(DATA.programs).flatMap(([title, signs]) => signs.filter(has).map((own) => [own.length, title]));
  return marked.reduce((most, item) => (item[0] > most[0] ? item : most), [0, ""])[1];
}

function otherProgram(title) {
  return new Unread(`A file of ${title}: must be a config.json, flags of Megatron-LM or a link; shardmath explain FILE --gpu ${state.gpu} reads this one.`);
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
  const [least, most] = DATA.parameters[name].limits;
  throw new Unread(`${key} = ${asWritten(written)}: must be an integer from ${least} to ${most}.`);
}

// The model of a config.json, which the reader of the commands makes; a model of the page has the same formulas.
function fromConfig(text) {
  const { model, family, outer, remarks, idle } = configOf(text);
  const { kernelsOf, modelOf } = shardmath.readers;
  const kernels = kernelsOf(model);
  const like = [...MODELS.values()].find(({ fields }) => kernelsOf(modelOf(fields)) === kernels);
  if (!like) throw new Unread(`model_type = ${family}: must have the kernels of a model of this page. Use shardmath explain ./config.json, or shardmath page ./config.json -o page.html.`);
  pick("model", like.name);
  for (const name of Object.keys(like.values)) state.numbers[name] = name in DATA.parameters ? sizeOf(name, name, Number(model[name]), model[name]) : Number(model[name]);
  settle();
  const usual = { ...DATA.fields, ...like.fields };
  const stated = JSON.parse(JSON.stringify(model));
  const other = DATA.config.unsized.filter((name) => JSON.stringify(stated[name]) !== JSON.stringify(usual[name] ?? null));
  state.file = Object.fromEntries(other.map((name) => [name, stated[name]]));
  return { notes: noted(...remarks.map((remark) => ["", [remark]]), [IDLE, idle]),
    read: `${family} model${outer === family ? "" : ` inside a ${outer} model`}, with the formulas of ${like.name}` };
}

function configOf(text) {
  const { readConfig, InputError } = shardmath.readers;
  try {
    const stated = JSON.parse(text);
    const program = "model_type" in stated ? "" : programOf(keysInside(stated));
    if (program) throw otherProgram(program);
    return readConfig(text);
  } catch (error) {
    if (error instanceof SyntaxError) throw new Unread(`This is no JSON: ${error.message}.`);
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
function fromFlags(text) {
  const { sizes, switches, modules, elsewhere, idle, launcher, uncounted, refused, off, programs } = DATA.flags;
  const flags = flagsOf(text);
  const known = Object.entries(sizes).filter(([, flag]) => flags.has(flag));
  if (!known.length) throw new Unread("Nothing here is a link, a config.json or a flag of Megatron-LM.");
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
    if (!(name in state.numbers)) continue;
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
  return { notes: noted(["Without a value, ignored", withoutValue], [NOT_UNDERSTOOD, unknown], ["Not counted yet", said], [COMMANDS_READ, named],
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
    await load("readers");
    const { notes, read } = fromText(byId("pasted").value);
    byId("unread").textContent = "";
    byId("importer").close();
    await update();
    notice(`Read: ${read}.`, notes);
  } catch (error) {
    if (!(error instanceof Unread)) throw error;
    state = before;
    byId("unread").textContent = error.message;
    document.documentElement.dataset.ready = "";
  }
}
