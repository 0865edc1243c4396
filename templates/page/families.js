// Families of models as classes of Python have them: keys of a file within their limits, then translated methods.
const RULES = { int: "must be an integer", float: "must be a valid number", bool: "must be true or false", str: "must be text", list: "must be a valid list" };
const ARE = {
  int: (value) => typeof value === "number" && Number.isInteger(value), float: (value) => typeof plain(value) === "number",
  bool: (value) => typeof value === "boolean", str: (value) => typeof value === "string", list: Array.isArray,
};

// Refuse a value that is none of a few.
function refuseOthers(name, value, { values, rule, first }) {
  const same = (known) => known === plain(value) && (typeof known !== "number" || Number.isInteger(known) === (typeof value === "number"));
  if (!values.some(same)) throw new InputError(name, value, rule, first);
}

// Refuse a value of another kind, in the words of the commands.
function checked(name, value, { kind, null: isNullable, items, ge, le, gt, lt }) {
  if ((value === null && isNullable) || !kind) return value;
  const nearest = kind === "int" ? integerMeant(value) : null;
  if (!ARE[kind](value)) throw new InputError(name, value, RULES[kind], nearest);
  if (kind === "list") return value.map((item, place) => checked(`${name}.${place}`, item, items));
  if (lt !== undefined && !(value < lt)) throw new InputError(name, value, `must be less than ${lt}`);
  if (le !== undefined && value > le) throw new InputError(name, value, `must be at most ${le}`, String(le));
  if (gt !== undefined && !(value > gt)) throw new InputError(name, value, `must be greater than ${gt}`);
  if (ge !== undefined && !(value >= ge)) throw new InputError(name, value, `must be at least ${least(ge, kind)}`, least(ge, kind));
  return value;
}

const least = (limit, kind) => (kind === "float" ? `${limit}.0` : String(limit));

// The integer that was written as 4096.0 or "4096".
function integerMeant(value) {
  const number = plain(value);
  const meant = typeof number === "number" ? number >= 1 && number < 2 ** 31 && Number.isInteger(number) : /^\d{1,9}$/.test(number);
  return meant ? String(Number(number)) : null;
}

// A method of the next class that has it.
function inherited(owner, kind, name, ...values) {
  const { kinds } = owner;
  const next = kinds.slice(kinds.indexOf(kind) + 1).find((other) => name in METHODS_OF[other]);
  return METHODS_OF[next][name](owner, ...values);
}

function withMethods(owner) {
  for (const kind of [...owner.kinds].reverse())
    for (const [name, act] of Object.entries(METHODS_OF[kind])) owner[name] = (...values) => act(owner, ...values);
  return owner;
}

function familyOf({ kinds, fields, before, own, derived }) {
  const family = withMethods({ kinds, ...own, model_fields: mapOf(fields), derived_from: mapOf(derived) });
  family.keys = (name) => (fields[name]?.keys.some((key) => key !== name) ? fields[name].keys : [derived[name] ?? name]);
  family.read = (stated) => {
    const config = before.reduce((keys, name) => family[name](keys), stated);
    const values = {};
    for (const [name, field] of Object.entries(fields)) {
      const key = field.keys.find((item) => config.has(item));
      if (key === undefined && !("default" in field)) throw new InputError(field.keys[0], python.ABSENT, "must be given");
      if (key !== undefined && field.only) refuseOthers(name, config.get(key), field.only);
      values[name] = key === undefined ? field.default : checked(key, config.get(key), field);
    }
    return withMethods({ kinds, kind: family, ...own, ...values, keys: family.keys });
  };
  return family;
}

// A model with the fields of a file; rules between them are those of the commands.
function modelOf(stated) {
  const model = { attention_window: 0 };
  for (const [name, field] of Object.entries(FIELDS)) {
    const value = stated[name] ?? field.default ?? null;
    model[name] = ["int", "float"].includes(field.kind) && value !== null ? checked(name, value, field) : value;
  }
  for (const [name, act] of Object.entries(PROPERTIES)) Object.defineProperty(model, name, { get: () => act(model) });
  model.model_dump = () => new Map(Object.keys(FIELDS).map((field) => [field, model[field]]));
  reader.rules(model);
  return model;
}

const nearestNames = () => null; // the rule lists them
Object.assign(python, { Model: modelOf, RopeScaling: (figures) =>
  Object.fromEntries(Object.entries(figures).map(([name, figure]) => [name, figure instanceof Real ? figure.valueOf() : figure])) });

function mapOf(value) {
  if (Array.isArray(value)) return value.map(mapOf);
  return value !== null && typeof value === "object" && !(value instanceof Number)
    ? new Map(Object.entries(value).map(([name, item]) => [name, mapOf(item)])) : value;
}

// The model of a file, remarks on its keys, and keys without effect. A number with a point is none of the integers.
function readConfig(text) {
  const asRead = (key, value, context) => (typeof value === "number" && Number.isInteger(value) && /[.eE]/.test(context?.source ?? "") ? new Real(value) : value);
  const config = mapOf(JSON.parse(text, asRead));
  if (!isMap(config)) throw new InputError("model", config, "must be a JSON object");
  const [model, remarks] = reader.read(config, "this file", "this file");
  const [family, keys] = reader.family(config);
  const read = Object.values(SPECS[family].fields).flatMap((field) => field.keys);
  const idle = [...new Map([...config, ...keys])].filter(([key]) => reader.idle.includes(key) && !read.includes(key) && key !== "model_type" && key !== "text_config");
  return { model, remarks, family, outer: config.get("model_type"), idle: idle.map(([key, value]) => `${key} = ${shortened(value)}`) };
}

// The options of each program for a model, as one text; a program that has no such model has none.
function kernelsOf(model) {
  return JSON.stringify(IMPLEMENTATIONS.map((name) => {
    try {
      return [...reader.kernels(name, model)].sort();
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      return [];
    }
  }));
}
