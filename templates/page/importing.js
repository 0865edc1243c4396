// Pasted text: a link, a config.json, or the flags of a launch script.
function fromText(text) {
  const trimmed = text.trim();
  if (/^\S*#\S*=/.test(trimmed)) return { notes: noted(["Ignored", fromLink(trimmed)]), read: "link" };
  if (trimmed.startsWith("{")) return fromConfig(trimmed);
  return fromFlags(trimmed);
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

// The shape of a model; the catalogue has one of the same family, whose formulas it takes.
function fromConfig(text) {
  let config;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new Unread(`This is no JSON: ${error.message}.`);
  }
  const { model_type: stated, text_config: inside, ...around } = config;
  if (stated in DATA.config.with_text) config = textOf(config);
  const family = DATA.families[config.model_type];
  if (!family) {
    const why = DATA.unread[config.model_type];
    const known = Object.keys(DATA.families).sort().join(", ");
    const other = why?.endsWith("not counted yet") ? "" : " Use shardmath explain ./config.json, or shardmath page ./config.json -o page.html.";
    throw new Unread(`model_type = ${config.model_type}: ${why ? `must be another family: ${why}` : `the page reads ${known}`}.${other}`);
  }
  for (const key of DATA.config.experts)
    if (config[key] && !family.experts) throw new Unread(`${key} = ${asWritten(config[key])}: must not be there: no model of this model_type has experts.`);
  for (const names of family.needed)
    if (!names.some((key) => key in config)) throw new Unread(`${names[0]}: must be given.`);
  if (config.text_config) throw new Unread("text_config: must not be there: paste the config.json of the language model alone.");
  pick("model", family.model);
  Object.assign(state.numbers, family.usual);
  settle();
  const derived = ["head_dim", "num_kv_heads"].filter((name) => !(name in family.keys));
  for (const [name, keys] of Object.entries(family.keys)) {
    const key = keys.find((item) => item in config && config[item] !== null);
    if (key === undefined) {
      const stated = keys.some((item) => item in config); // as null, which the program puts another size in for
      const usual = stated ? null : family.absent[name] ?? null;
      if (usual !== null) pick(name, Number(usual));
      else derived.push(name);
      continue;
    }
    pick(name, sizeOf(name, key, Number(config[key]), config[key]));
  }
  if (derived.includes("head_dim")) pick("head_dim", state.numbers.hidden_size / state.numbers.num_attention_heads);
  if (derived.includes("num_kv_heads")) pick("num_kv_heads", state.numbers.num_attention_heads);
  return { notes: noted(...keysLeft(inside ? { ...around, ...config } : config, family)),
    read: `${config.model_type} model${stated === config.model_type ? "" : ` inside a ${stated} model`}, with the formulas of ${family.model}` };
}

// The language model inside of a model of text and images; older files have its keys at the top.
function textOf(config) {
  const { with_text: families, text_names: names } = DATA.config;
  const { model_type: outer, text_config: inner } = config;
  const usual = families[outer];
  if (inner === undefined && "hidden_size" in config) return { ...config, model_type: usual };
  if (inner === null || typeof inner !== "object" || Array.isArray(inner))
    throw new Unread(`text_config = ${asWritten(inner ?? null)}: must be the object that describes the language model.`);
  const stated = inner.model_type ?? usual;
  const shared = "tie_word_embeddings" in config ? { tie_word_embeddings: config.tie_word_embeddings } : {};
  return { ...shared, ...inner, model_type: stated === outer ? usual : names[stated] ?? stated };
}

// Keys that the page does not take: unknown ones, those that the commands alone read, and what they would say.
function keysLeft(config, family) {
  const { silent, remarks, causal } = DATA.config;
  const sizes = new Set(Object.values(family.keys).flat());
  const [unknown, elsewhere, said, idle] = [[], [], [], []];
  for (const [key, value] of Object.entries(config)) {
    if (sizes.has(key) || key === "model_type" || key === "architectures") continue;
    const usual = family.read[key];
    const shown = `${key} = ${asWritten(value)}`;
    if (usual === null || usual?.some((item) => JSON.stringify(item) === JSON.stringify(value))) continue;
    if (usual) elsewhere.push(shown);
    else if (key in remarks) value && said.push(`${shown} (${remarks[key]})`);
    else (silent.includes(key) ? idle : unknown).push(shown);
  }
  const { architectures } = config;
  if (architectures?.length && !architectures.some((name) => causal.some((end) => `${name}`.endsWith(end))))
    said.push(`architectures = ${asWritten(architectures)} (counted is the causal language model)`);
  return [[NOT_UNDERSTOOD, unknown], [COMMANDS_READ, elsewhere], ["Left out", said], [IDLE, idle]];
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
  try {
    const { notes, read } = fromText(byId("pasted").value);
    byId("unread").textContent = "";
    byId("importer").close();
    await update();
    notice(`Read: ${read}.`, notes);
  } catch (error) {
    if (!(error instanceof Unread)) throw error;
    state = before;
    byId("unread").textContent = error.message;
  }
}
