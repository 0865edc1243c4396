// Settings of other programs: their files as plain data, and the readers of the commands over the tables of formats.
const settingsReader = {};
const noMarks = () => []; // signs of the shell, which a pasted file has none of
const asIs = (word) => word;
const nameOf = () => "pasted";

class Unwritten extends Error {} // a file that is written as the page does not read it

// A word of TOML or YAML as the value that it stands for; YAML has more words for true and false.
function scalarOf(word, isYaml) {
  const quoted = /^"((?:[^"\\]|\\.)*)"$|^'([^']*)'$/.exec(word);
  if (quoted) return quoted[1] !== undefined ? JSON.parse(`"${quoted[1]}"`) : quoted[2];
  if (word.startsWith("[") || word.startsWith("{")) return insideOf(word, isYaml);
  const lower = word.toLowerCase();
  if (["true", ...(isYaml ? ["yes", "on"] : [])].includes(lower)) return true;
  if (["false", ...(isYaml ? ["no", "off"] : [])].includes(lower)) return false;
  if (isYaml && ["", "~", "null"].includes(lower)) return null;
  if (/^[+-]?\d[\d_]*$/.test(word)) return Number(word.replaceAll("_", ""));
  if (/^[+-]?(\d[\d_]*)?\.\d*(e[+-]?\d+)?$/i.test(word) || (!isYaml && /^[+-]?\d+(\.\d+)?e[+-]?\d+$/i.test(word))) return realOf(Number(word.replaceAll("_", "")));
  if (isYaml && !/^[&*!|>%@`]/.test(word)) return word;
  throw new Unwritten(word);
}

const realOf = (number) => (Number.isInteger(number) ? new Real(number) : number);

// A list or a table in one line.
function insideOf(word, isYaml) {
  const items = partsOf_(word.slice(1, -1));
  if (!/[\]}]$/.test(word)) throw new Unwritten(word);
  if (word[0] === "[") return items.map((item) => scalarOf(item, isYaml));
  return new Map(items.map((item) => {
    const [, key, value] = /^["']?([\w.-]+)["']?\s*[:=]\s*(.*)$/s.exec(item) ?? [];
    if (key === undefined) throw new Unwritten(item);
    return [key, scalarOf(value, isYaml)];
  }));
}

// The parts between commas that stand in no brackets and no quotes.
function partsOf_(text) {
  const parts = [""];
  let [depth, mark] = [0, ""];
  for (const sign of text) {
    if (mark) mark = sign === mark ? "" : mark;
    else if (sign === '"' || sign === "'") mark = sign;
    else if ("[{".includes(sign)) depth += 1;
    else if ("]}".includes(sign)) depth -= 1;
    if (sign === "," && !depth && !mark) parts.push("");
    else parts[parts.length - 1] += sign;
  }
  return parts.map((part) => part.trim()).filter(Boolean);
}

// A line without its comment, which begins with a number sign outside of quotes.
function uncommented(line, needsBlank) {
  let mark = "";
  for (const [place, sign] of [...line].entries()) {
    if (mark) mark = sign === mark ? "" : mark;
    else if (sign === '"' || sign === "'") mark = sign;
    else if (sign === "#" && (!needsBlank || !place || /\s/.test(line[place - 1]))) return line.slice(0, place);
  }
  return line;
}

const isOpen = (text) => (text.match(/[[{]/g) ?? []).length > (text.match(/[\]}]/g) ?? []).length;

function tableAt(data, keys) {
  let table = data;
  for (const key of keys) {
    if (!table.has(key)) table.set(key, new Map());
    table = table.get(key);
    if (!isMap(table)) throw new Unwritten(key);
  }
  return table;
}

// Tables, and keys with values in one line or with lists over several.
function fromToml(text) {
  const data = new Map();
  let [table, begun] = [data, ""];
  for (const line of text.split(/\r?\n/)) {
    const joined = `${begun} ${uncommented(line)}`.trim();
    begun = "";
    const [, section] = /^\[\s*([\w."-]+)\s*\]$/.exec(joined) ?? [];
    const [, key, value] = /^([\w."-]+)\s*=\s*(.+)$/.exec(joined) ?? [];
    if (!joined) continue;
    if (section) table = tableAt(data, section.replaceAll('"', "").split("."));
    else if (key === undefined || value.startsWith('"""')) throw new Unwritten(joined);
    else if (isOpen(value)) begun = joined;
    else {
      const names = key.replaceAll('"', "").split(".");
      tableAt(table, names.slice(0, -1)).set(names.at(-1), scalarOf(value, false));
    }
  }
  if (begun) throw new Unwritten(begun);
  return data;
}

// Tables by their indents, and lists of words.
function fromYaml(text) {
  const data = new Map();
  const around = [{ indent: -1, table: data }];
  for (const line of text.split(/\r?\n/)) {
    const plainLine = uncommented(line, true).trimEnd();
    if (!plainLine.trim() || /^(---|\.\.\.|%YAML)/.test(plainLine)) continue;
    const indent = plainLine.search(/\S/);
    const [, item] = /^\s*-\s+(.*)$/.exec(plainLine) ?? [];
    while (around.length > 1 && (around.at(-1).indent > indent || (around.at(-1).indent === indent && item === undefined))) around.pop();
    const last = around.at(-1);
    if (item !== undefined) {
      if (/^["']?[\w.-]+["']?:(\s|$)/.test(item) || !last.owner) throw new Unwritten(item);
      if (!Array.isArray(last.owner.get(last.key))) last.owner.set(last.key, []);
      last.owner.get(last.key).push(scalarOf(item, true));
      continue;
    }
    const [, key, value] = /^\s*["']?([\w./-]+)["']?\s*:(?:\s+(.*))?$/.exec(plainLine) ?? [];
    if (key === undefined) throw new Unwritten(plainLine.trim());
    let { table } = last;
    if (last.key !== undefined) {
      table = isMap(last.owner.get(last.key)) ? last.owner.get(last.key) : new Map();
      last.owner.set(last.key, table);
    }
    if (isMap(table) === false) throw new Unwritten(key);
    table.set(key, scalarOf(value ?? "", true));
    if (value === undefined || value === "") around.push({ indent, owner: table, key });
  }
  return data;
}

let knownTables;
function tablesOf() {
  knownTables ??= DATA.tables.formats.map((format) => {
    const made = Object.fromEntries(Object.entries(format).map(([name, part]) => [name, mapOf(part)]));
    for (const [name, act] of Object.entries(TABLE_METHODS)) made[name] = (...values) => act(made, ...values);
    return made;
  });
  return knownTables;
}

const unreadOf = () => mapOf(DATA.tables.unread);
const tableOf = (name) => tablesOf().find((format) => format.name === name);

// Settings of a file that a key names: the page has but the name.
function ofFile(_, key, stated) {
  const named_ = stated.words.get(key).join(" ");
  return ["", "false", "none", "null"].includes(named_.toLowerCase()) ? new Map() : settingsReader.ofName(named_, key, stated);
}

// A model of the page by its name.
function cataloguedModel(name) {
  const model = modelOf(MODELS.get(name).fields);
  return Object.assign(model, { name, model_dump: () => new Map(Object.keys(FIELDS).map((field) => [field, model[field]])) });
}
modelOf.named = cataloguedModel;

// The model that a trainer's settings name.
function modelNamed(options) {
  const key = "model_name_or_path";
  const word = options.word(key);
  const nameIn = (text) => {
    const name = text.trim().toLowerCase().split("/").at(-1).replace(/^meta-/, "").replace(/-hf$/, "");
    const begun = [...MODELS.keys()].filter((other) => other === name || other.startsWith(`${name}-`));
    return begun.includes(name) ? name : begun.length === 1 ? begun[0] : undefined;
  };
  const end = DATA.tables.trained.find((item) => word.toLowerCase().endsWith(item)) ?? "";
  const shape = nameIn(word) ?? (end ? nameIn(word.toLowerCase().slice(0, -end.length)) : undefined);
  if (shape === undefined) throw new InputError(options.shown(key), word, "must be a model of this page");
  if (nameIn(word) === undefined) options.warnings.push(`${word} is taken to have the shape of ${shape}`);
  return cataloguedModel(shape);
}

Object.assign(python, {
  Run: (format, source, model, given, understood, idle, unknown, warnings, replica) => ({ format, model, given, understood, idle, unknown, warnings, replica }),
  Sorted: (options, keys, idle, unknown) => ({ options, keys, idle, unknown }),
});

// The settings of a trainer that the page has for a file that is silent, in the vocabulary of the tables.
const OF_PAGE = { model: "model_name_or_path", seq_length: "max_length", micro_batch_size: "per_device_train_batch_size" };

// Settings of the page where a file is silent or automatic; the keys of those are taken away.
function silent(format, words, page) {
  const vocabulary = (key) => format.means.get(key) ?? key;
  for (const [key, said] of [...words]) if (said.join() === "auto" && vocabulary(key) === OF_PAGE.micro_batch_size) words.delete(key);
  const stated = [...words.keys()].map(vocabulary);
  const has = (name) => stated.includes(name) || (name === OF_PAGE.seq_length && words.has("tokenizer.max_seq_len"));
  const own = { transformers: Object.keys(OF_PAGE), torchtune: ["seq_length"] }[format.vocabulary] ?? [];
  return new Map(own.filter((name) => page[name] !== undefined && !has(OF_PAGE[name])).map((name) => [OF_PAGE[name], [String(page[name])]]));
}

// The run that a file of settings describes, by the readers of the commands; nothing for a file of no program that is known.
// Where a trainer's file is silent, sizes are those of the page; ``lacks`` names them.
function readProgram(text, page = {}) {
  const trimmed = text.trim();
  const asRead = (key, value, context) => (typeof value === "number" && /[.eE]/.test(context?.source ?? "") ? realOf(value) : value);
  const isToml = /^\s*\[[\w.-]+\]\s*(#.*)?$/m.test(trimmed);
  const words = settingsReader.flattened(trimmed.startsWith("{") ? mapOf(JSON.parse(trimmed, asRead)) : isToml ? fromToml(trimmed) : fromYaml(trimmed));
  const format = settingsReader.formatOf(words) ?? (isToml ? tableOf("torchtitan") : null);
  if (!format) return undefined;
  const around = silent(format, words, page);
  const run = settingsReader.readSettings(format, "", words, null, [], around);
  return { ...run, title: format.title, lacks: [...around.keys()] };
}
