// Pasted text: a link, a config.json, or the flags of a launch script.
function fromText(text) {
  const trimmed = text.trim();
  if (/^\S*#\S*=/.test(trimmed)) return { ignored: fromLink(trimmed), read: "link" };
  if (trimmed.startsWith("{")) return fromConfig(trimmed);
  return fromFlags(trimmed);
}

class Unread extends Error {}

// The shape of a model; the catalogue has one of the same family, whose formulas it takes.
function fromConfig(text) {
  let config;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new Unread(`This is no JSON: ${error.message}.`);
  }
  const family = DATA.families[config.model_type];
  if (!family) {
    const known = Object.keys(DATA.families).sort().join(", ");
    throw new Unread(`model_type = ${config.model_type}: the page reads ${known}. Other files: shardmath page ./config.json -o page.html.`);
  }
  const ignored = [];
  pick("model", family.model);
  Object.assign(state.numbers, family.usual);
  settle();
  for (const [name, keys] of Object.entries(family.keys)) {
    const key = keys.find((item) => item in config && config[item] !== null);
    if (key === undefined) continue;
    const value = Number(config[key]);
    if (legal(name, value)) pick(name, value);
    else ignored.push(`${key}=${config[key]}`);
  }
  if (!family.keys.head_dim?.some((key) => config[key])) pick("head_dim", state.numbers.hidden_size / state.numbers.num_attention_heads);
  if (!family.keys.num_kv_heads?.some((key) => config[key])) pick("num_kv_heads", state.numbers.num_attention_heads);
  return { ignored, read: `${config.model_type} model, with the formulas of ${family.model}` };
}

// Flags of Megatron-LM by the parameters that they set; flags without one are passed over.
function fromFlags(text) {
  const flags = new Map([...text.matchAll(/--([a-z][\w-]*)(?:[ =]+([^\s\\-][^\s\\]*))?/g)].map(([, name, value]) => [name, value]));
  const known = Object.entries(DATA.flags.sizes).filter(([, flag]) => flags.has(flag));
  if (!known.length) throw new Unread("Nothing here is a link, a config.json or a flag of Megatron-LM.");
  pick("implementation", "megatron");
  const ignored = [];
  for (const [name, flag] of known) {
    const value = Number(flags.get(flag));
    if (name in state.numbers && legal(name, value)) pick(name, value);
    else ignored.push(`--${flag} ${flags.get(flag)}`);
  }
  for (const [name, flag] of Object.entries(DATA.flags.switches)) if (name in state.numbers) pick(name, Number(flags.has(flag)));
  const granularity = flags.get("recompute-granularity");
  if (granularity === "full") pick("recompute", "full");
  else pick("recompute", granularity === "selective" || flags.has("recompute-activations") ? "core_attention" : "none");
  return { ignored, read: `${known.length} flags of Megatron-LM` };
}

async function takePasted() {
  const before = structuredClone(state);
  try {
    const { ignored, read } = fromText(byId("pasted").value);
    byId("importer").close();
    await update();
    notice(`Read: ${read}.${ignored.length ? ` Ignored: ${ignored.join(", ")}.` : ""}`);
  } catch (error) {
    if (!(error instanceof Unread)) throw error;
    state = before;
    byId("unread").textContent = error.message;
  }
}
