// Settings of other programs: their files as plain data, and the readers of the commands over the tables of formats.
const settingsReader = {};
// A word for what has no value, the names of these in a word, and the word as it was written.
const mark = (name) => `\ue000${name.startsWith("$(") ? "$(...)" : name.replace(/\s/g, "").slice(0, 40)}\ue001`;
const marked = (word) => [...word.matchAll(/\ue000([^\ue001]*)\ue001/g)].map(([, name]) => name);
const unmarked = (word) => word.replace(/\ue000([^\ue001]*)\ue001/g, (_, name) => (name.startsWith("$") ? name : `\${${name}}`));
const behindUnknown = (word) => (marked(word).length ? word.split("\ue001").pop().replace(/^\/+/, "") : word);
const wheelOf = () => new Map([["precisions", mapOf(TABLES.precisions)]]);
const nothingBeside = () => null; // files that a pasted one names are not here
const unread = (...names) => { throw new Unwritten(names.join(" ")); };
const nameOf = () => "pasted";

let knownTables;
function tablesOf() {
  knownTables ??= TABLES.formats.map((format) => {
    const made = Object.fromEntries(Object.entries(format).map(([name, part]) => [name, mapOf(part)]));
    for (const [name, act] of Object.entries(TABLE_METHODS)) made[name] = (...values) => act(made, ...values);
    return made;
  });
  return knownTables;
}

const unreadOf = () => mapOf(TABLES.unread);
const tableOf = (name) => tablesOf().find((format) => format.name === name);

// Settings of a file that a key names: the page has but the name.
function ofFile(_, key, stated) {
  const named_ = stated.words.get(key).join(" ");
  return ["", "false", "none", "null"].includes(named_.toLowerCase()) ? new Map() : settingsReader.ofName(named_, key, stated);
}

// A model of the catalogue by its name, as the commands find it.
const namesKnown = () => [...MODELS.values()].filter((model) => !model.of_family).map(({ name }) => name);
modelOf.named = (asked) => {
  try {
    return modelOf(MODELS.get(settingsReader.modelCalled(asked, namesKnown())).fields);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    throw new InputError("model", asked, "must be a model of this page");
  }
};

// The model that a trainer's settings name.
function modelNamed(options) {
  const key = "model_name_or_path";
  const word = options.word(key);
  if (!word) throw options.error(key, `must be given: give it with --set ${options.shown(key)}=NAME`);
  let model;
  try {
    model = modelOf.named(word);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    throw new InputError(options.shown(key), word, error.rule);
  }
  const { begunBy, plainName } = settingsReader;
  if (!begunBy(plainName(word), namesKnown()).includes(model.name)) options.warnings.push(`${word} is taken to have the shape of ${model.name}`);
  if (model.note) options.warnings.push(`${model.name}: ${model.note}`);
  return model;
}

// A run, whose lists may be given by name; objects that functions return have the names of the commands.
function runOf(format, model, given, understood = [], idle = [], unknown = [], warnings = [], replica = null) {
  const run = isPlain(understood) ? understood : { understood, without_effect: idle, unknown, warnings, replica_batch: replica };
  return { format, model, arguments: given, ...run };
}
const isPlain = (value) => Object.getPrototypeOf(value) === Object.prototype;

Object.assign(python, {
  Launch: (program, flags, gpus, notes = []) => ({ program, flags, num_gpus: gpus, notes }),
  _Started: (format, files, before, behind) => ({ format, files, before, behind }),
  Name: "a name in a Python file", // which plain data has none of
  Run: (format, source, model, given, ...rest) => runOf(format, model, given, ...rest),
  Sorted: (options, keys, idle, unknown) => ({ options, keys, idle, unknown }),
});

// The settings of a trainer that the page has for a file that is silent, in the vocabulary of the tables.
const OF_PAGE = { model: "model_name_or_path", seq_length: "max_length", micro_batch_size: "per_device_train_batch_size" };

// Settings of the page where a file is silent or automatic; the keys of those are taken away.
function silent(format, words, page) {
  const vocabulary = (key) => format.means.get(key) ?? key;
  const sizes = [...words].filter(([key]) => vocabulary(key) === OF_PAGE.micro_batch_size);
  if (page.micro_batch_size && sizes.every(([, said]) => said.join() === "auto")) for (const [key] of sizes) words.delete(key);
  const stated = [...words.keys()].map(vocabulary);
  const has = (name) => stated.includes(name) || format.defaults.has(name) || (name === OF_PAGE.seq_length && words.has("tokenizer.max_seq_len"));
  const own = { transformers: Object.keys(OF_PAGE), torchtune: ["seq_length"] }[format.vocabulary] ?? [];
  return new Map(own.filter((name) => page[name] !== undefined && !has(OF_PAGE[name])).map((name) => [OF_PAGE[name], [String(page[name])]]));
}

const ON_SEVERAL = "taken as a recipe of several GPUs, which share out the model; one of a single device shares nothing";

// The run that a text describes, by the readers of the commands; nothing for a text of no program that is known.
// Where a trainer's file is silent, sizes are those of the page; ``lacks`` names them.
function readProgram(text, page = {}) {
  let wrong = null;
  try {
    const run = ofData(text, page);
    if (run) return run;
  } catch (error) {
    if (!(error instanceof Unwritten)) throw error;
    wrong = error;
  }
  try {
    if (/(?:^|[\s("'])--[A-Za-z]/.test(text)) return ofScript(text);
  } catch (error) {
    if (error.value !== THIS_TEXT) throw error;
  }
  if (wrong) throw wrong;
  return undefined;
}

// The run of settings in JSON, TOML or YAML.
function ofData(text, page) {
  const data = nestedData(text);
  if (!isMap(data)) return undefined;
  if (data.has("MODEL_ARGS")) return withTitle(settingsReader.ofTest("", "pasted", data, new Map(), new Map()), "Megatron-LM's tests");
  const words = settingsReader.flattened(data);
  const format = settingsReader.formatOf(words) ?? (isToml(text) ? tableOf("torchtitan") : null);
  if (format) {
    const around = silent(format, words, page);
    const run = settingsReader.readSettings(format, "", words, null, [], around);
    const remarks = format.vocabulary === "torchtune" ? [ON_SEVERAL] : [];
    return run.understood.length ? { ...run, title: format.title, lacks: [...around.keys()], remarks } : undefined;
  }
  if (![...words.keys()].some((key) => key.startsWith("model."))) return undefined;
  const stated = new Options(words, { shown: (name) => name });
  return withTitle(settingsReader.ofSections("", "pasted", stated), [...words.keys()].some((key) => key.startsWith("trainer.")) ? "NeMo" : "Megatron-Bridge");
}

const THIS_TEXT = "this text";

// The run that a launch script starts, or flags without a command.
function ofScript(text) {
  const script = new Script(text, allocationOf(text));
  const run = settingsReader.ofScript("", script, new Map());
  if (run) return withTitle(run, tableOf(run.format).title);
  const launch = settingsReader.launchOf(THIS_TEXT, script);
  const options = new Options(launch.flags);
  return withTitle(settingsReader.ofFlags(options, "pasted", launch.program, launch.num_gpus, script.variables, [...script.notes, ...launch.notes], "megatron"), "Megatron-LM");
}

const withTitle = (run, title) => ({ ...run, title, lacks: [], remarks: [] });
