// Built-in names of Python, for functions that are translated from it: dictionaries are maps, tuples and lists arrays.
class ValueError extends Error {}
class IndexError extends Error {}

class InputError extends ValueError {
  constructor(field, value, rule, asked = null) {
    const nearest = typeof asked === "function" ? asked() : asked;
    super(`${field} = ${shortened(value, nearest)}: ${rule}${nearest ? `; nearest legal: ${nearest}` : ""}`);
    Object.assign(this, { field, value, rule, nearest });
  }
}

// A whole number that is a float in Python, which shows its point.
class Real extends Number {
  toString() {
    return Math.abs(this.valueOf()) < 1e16 ? `${Object.is(this.valueOf(), -0) ? "-0" : this.valueOf()}.0` : digitsOf(this.valueOf());
  }
}

// A match with its ends.
const withEnds = (match) => match && Object.assign(match, { start: () => match.index, end: () => match.index + match[0].length });

class Pattern {
  constructor(pattern) {
    this.pattern = pattern;
  }

  fullmatch(text) {
    return withEnds(new RegExp(`^(?:${this.pattern})$`).exec(text));
  }

  search(text) {
    return withEnds(new RegExp(this.pattern).exec(text));
  }

  match(text) {
    return withEnds(new RegExp(`^(?:${this.pattern})`).exec(text));
  }

  findall(text) {
    return [...text.matchAll(new RegExp(this.pattern, "g"))].map(([all, ...groups]) => {
      const seen = groups.map((group) => group ?? "");
      return seen.length > 1 ? seen : (seen[0] ?? all);
    });
  }

  finditer(text) {
    return python.finditer(this.pattern, text);
  }

  sub(act, text) {
    return text.replace(new RegExp(this.pattern, "g"), typeof act === "string" ? act : (...match) => act(match));
  }
}

let keptValue; // of an assignment to several targets
const touched = new Set(); // keys that were looked up

const isMap = (value) => value instanceof Map;
const plain = (value) => (value instanceof Number ? value.valueOf() : value);

function truth(value) {
  if (value === undefined || value === null) return false;
  if (isMap(value)) return value.size > 0;
  if (Array.isArray(value)) return value.length > 0;
  return Boolean(plain(value));
}

// The values of an array, a text or a generator; the keys of a map.
function iterated(value) {
  return isMap(value) ? [...value.keys()] : value;
}

function collected(fill) {
  const items = [];
  fill((item) => items.push(item));
  return items;
}

function both(...parts) {
  let value;
  for (const part of parts) if (!truth(value = part())) break;
  return value;
}

function either(...parts) {
  let value;
  for (const part of parts) if (truth(value = part())) break;
  return value;
}

function equal(left, right) {
  const [one, other] = [plain(left), plain(right)].map((value) => (typeof value === "boolean" ? Number(value) : value ?? null));
  if (Array.isArray(one)) return Array.isArray(other) && one.length === other.length && one.every((item, place) => equal(item, other[place]));
  if (isMap(one)) return isMap(other) && one.size === other.size && [...one].every(([key, item]) => other.has(key) && equal(item, other.get(key)));
  return one === other;
}

const unequal = (left, right) => !equal(left, right);
const isSame = (left, right) => (left ?? null) === (right ?? null);
const isNotSame = (left, right) => !isSame(left, right);
const less = (left, right) => left < right;
const more = (left, right) => left > right;

// At most, or of items none but those of another.
function atMost(left, right) {
  return Array.isArray(left) ? left.every((item) => isIn(item, right)) : left <= right;
}

// At least, or of items all those of another.
function atLeast(left, right) {
  return Array.isArray(left) ? right.every((item) => isIn(item, left)) : left >= right;
}

// The key of a map that equals another one; sets of words are lists.
function keyIn(owner, key) {
  return Array.isArray(key) ? [...owner.keys()].find((other) => equal(other, key)) ?? key : plain(key);
}

function isIn(item, owner) {
  if (isMap(owner)) return owner.has(keyIn(owner, item));
  if (owner instanceof Options) return owner.has(item);
  if (typeof owner === "string") return owner.includes(item);
  return [...owner].some((other) => equal(item, other));
}

const isNotIn = (item, owner) => !isIn(item, owner);

function add(left, right) {
  return Array.isArray(left) ? [...left, ...right] : plain(left) + plain(right);
}

const subtract = (left, right) => (Array.isArray(left) ? left.filter((item) => isNotIn(item, right)) : left - right);
const common = (left, right) => left.filter((item) => isIn(item, right));
const power = (left, right) => left ** right;
const divide = (left, right) => left / right;
const floorDivide = (left, right) => Math.floor(left / right);
const modulo = (left, right) => left - right * Math.floor(left / right);

function multiply(left, right) {
  if (typeof left === "string") return left.repeat(Math.max(0, right));
  return Array.isArray(left) ? Array(Math.max(0, right)).fill(left).flat() : left * right;
}

// Maps joined, the last wins; of types all of them.
const union = (...maps) => (isMap(maps[0]) ? new Map(maps.flatMap((map) => [...map])) : maps.flat());

function at(owner, key) {
  if (isMap(owner)) {
    if (!owner.has(keyIn(owner, key))) throw new Error(`no ${key}`);
    touched.add(key);
    return owner.get(keyIn(owner, key));
  }
  const place = key < 0 ? owner.length + key : key;
  if (!(place < owner.length)) throw new IndexError(key);
  return owner[place];
}

function put(owner, key, value) {
  if (isMap(owner)) owner.set(key, value);
  else owner[key] = value;
}

// Settings by name, which are noted when they are asked for; readers of files give them methods.
class Options {
  constructor(words, { shown = (name) => `--${name}`, source = "", choices = new Map() } = {}) {
    Object.assign(this, { words: new Map(words), shown, source, choices, asked: [], warnings: [] });
  }

  has(name) {
    if (!this.asked.includes(name)) this.asked.push(name);
    return this.words.has(name);
  }
}

// The number that a text says, with underscores between digits. Raises an error for other texts, as Python does.
function parsedNumber(text, pattern) {
  const word = text.trim();
  if (/^[+-]?(inf|infinity|nan)$/i.test(word) && pattern.test("1.")) return /nan/i.test(word) ? NaN : word[0] === "-" ? -Infinity : Infinity;
  if (/(^|\D)_|_(\D|$)/.test(word) || !pattern.test(word.replaceAll("_", ""))) throw new ValueError(text);
  return Number(word.replaceAll("_", ""));
}

const named = (map) => Object.fromEntries(map); // arguments by name

// The items for as many names.
function unpacked(value, count) {
  const items = [...iterated(value)];
  if (items.length !== count) throw new ValueError(`${items.length} values for ${count} names`);
  return items;
}

const sliced = (owner, start, end) => owner.slice(start, end);

// A number with some digits, without zeros behind them, as "%g" shows it.
function general(number, digits) {
  if (number === 0) return "0";
  const [mantissa, exponent] = number.toExponential(digits - 1).split("e");
  const strip = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (exponent >= -4 && exponent < digits) return strip(number.toFixed(Math.max(0, digits - 1 - exponent)));
  return `${strip(mantissa)}e${exponent[0] === "-" ? "-" : "+"}${exponent.replace(/^[+-]/, "").padStart(2, "0")}`;
}

function formatted(value, spec) {
  const [, digits = "6"] = /^\.(\d+)/.exec(spec) ?? [];
  if (spec.endsWith("g")) return general(Number(value), Number(digits));
  if (spec === ",") return str(value).replace(/\B(?=(\d{3})+$)/g, ",");
  return spec.endsWith("f") ? Number(value).toFixed(digits) : str(value);
}

function str(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null || value === undefined) return "None";
  if (typeof value === "number" && !Number.isInteger(value)) return digitsOf(value);
  return Array.isArray(value) || isMap(value) ? python.repr(value) : String(value);
}

function dumps(value, { indent } = {}, level = "") {
  const deeper = indent ? `${level}${" ".repeat(indent)}` : "";
  const [start, between, end] = indent ? [`\n${deeper}`, `,\n${deeper}`, `\n${level}`] : ["", ", ", ""];
  const joined = (items, open, close) => (items.length ? `${open}${start}${items.join(between)}${end}${close}` : `${open}${close}`);
  if (isMap(value)) return joined([...value].map(([key, item]) => `${JSON.stringify(key)}: ${dumps(item, { indent }, deeper)}`), "{", "}");
  if (Array.isArray(value)) return joined(value.map((item) => dumps(item, { indent }, deeper)), "[", "]");
  if (value instanceof Real) return String(value);
  if (typeof value === "number" && value !== 0 && Math.abs(value) < 1e-4) return general(value, 17);
  return JSON.stringify(value).replace(/[^\0-\x7f]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// A value in words, cut to what fits in a line; beside a legal value letters of other alphabets are codes.
function shortened(value, nearest = null) {
  const shown = python.repr(typeof value === "string" ? value.slice(0, 61) : value);
  const text = nearest ? shown.replace(/[^\0-\x7f]/g, (sign) => `\\${sign < "\u0100" ? "x" : "u"}${sign.charCodeAt(0).toString(16).padStart(sign < "\u0100" ? 2 : 4, "0")}`) : shown;
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}

// An error of a part of the input, with the name of the part before that of the field.
function inside(part, error) {
  return error instanceof InputError ? new InputError(`${part}.${error.field}`, error.value, error.rule, error.nearest) : error;
}

// The shortest digits of a number, with the exponent that Python has.
function digitsOf(number) {
  if (Number.isNaN(number) || Math.abs(number) === Infinity) return { NaN: "nan", Infinity: "inf", "-Infinity": "-inf" }[number];
  if (number !== 0 && (Math.abs(number) < 1e-4 || Math.abs(number) >= 1e16)) {
    const [mantissa, exponent] = number.toExponential().split("e");
    return `${mantissa}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
  }
  return String(number);
}

function repr(value) {
  if (typeof value === "string") {
    const mark = value.includes("'") && !value.includes('"') ? '"' : "'";
    return `${mark}${value.replaceAll("\\", "\\\\").replaceAll("\n", "\\n").replaceAll("\t", "\\t").replaceAll("\r", "\\r").replace(/[\ue000-\uf8ff]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16)}`).replaceAll(mark, `\\${mark}`)}${mark}`;
  }
  if (value === python.ABSENT) return "absent";
  if (Array.isArray(value)) return `[${value.map(repr).join(", ")}]`;
  if (isMap(value)) return `{${[...value].map(([key, item]) => `${repr(key)}: ${repr(item)}`).join(", ")}}`;
  if (typeof value === "number" && !Number.isInteger(value)) return digitsOf(value);
  return str(value);
}

const python = {
  InputError, ValueError, IndexError, dumps, str, repr, ABSENT: Symbol("absent"), isqrt: (value) => Math.floor(Math.sqrt(value)),
  iter: (value) => iterated(value), bool: truth, len: (value) => value.size ?? value.length, int: (value) => (typeof value === "string" ? parsedNumber(value, /^[+-]?\d+$/) : Math.trunc(Number(value))),
  float: (value) => (typeof value === "string" ? parsedNumber(value, /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i) : Number(value)),
  abs: Math.abs, reversed: (value) => [...iterated(value)].reverse(),
  filter: (act, value) => [...iterated(value)].filter(act ?? truth), Options: (words, more) => new Options(words, more),
  type: (value) => value?.kind ?? TYPES.find((kind) => python.isinstance(value, kind)), getattr: (owner, name) => owner[name],
  list: (value) => [...iterated(value)], tuple: (value) => [...iterated(value)], dict: (value) => new Map(value),
  set: (value) => [...new Set(iterated(value))], frozenset: (value) => [...new Set(iterated(value))].sort(),
  map: (act, value) => [...iterated(value)].map((item) => act(item)),
  zip: (...values) => { const lists = values.filter((value) => typeof value?.[Symbol.iterator] === "function").map((value) => [...iterated(value)]); return lists[0].slice(0, Math.min(...lists.map((list) => list.length))).map((_, place) => lists.map((list) => list[place])); },
  *enumerate(value, first = 0) { for (const item of iterated(value)) yield [first++, item]; },
  *chain(...parts) { for (const part of parts) yield* iterated(part); },
  *islice(value, many) { if (many > 0) for (const item of iterated(value)) { yield item; if (--many < 1) return; } },
  *zip_longest(...parts) {
    const walks = parts.map((part) => iterated(part)[Symbol.iterator]());
    for (;;) {
      const steps = walks.map((walk) => walk.next());
      if (steps.every(({ done }) => done)) return;
      yield steps.map(({ done, value }) => (done ? null : value));
    }
  },
  // An object with the methods of a class, after its constructor.
  made: ({ __init__, ...methods }, values) => {
    const self = {};
    for (const [name, act] of Object.entries(methods)) self[name] = (...given) => act(self, ...given);
    __init__(self, ...values);
    return self;
  },
  range: (start, end, step = 1) => (end === undefined ? python.range(0, start)
    : Array.from({ length: Math.max(0, Math.ceil((end - start) / step)) }, (_, place) => start + place * step)),
  all: (value) => [...value].every(truth), any: (value) => [...value].some(truth),
  sum: (value) => [...value].reduce((total, item) => total + Number(item), 0),
  max: (...values) => extreme(Math.max, values), min: (...values) => extreme(Math.min, values),
  divmod: (left, right) => [floorDivide(left, right), modulo(left, right)],
  sorted: (value, { key = (item) => item } = {}) => [...iterated(value)].map((item) => [key(item), item])
    .sort(([left], [right]) => (left < right ? -1 : Number(left > right))).map(([, item]) => item),
  next: (value, usual) => {
    for (const item of iterated(value)) return item;
    return usual;
  },
  isinstance: (value, type) => [].concat(type).some((kind) => {
    if (kind === python.int) return typeof value === "boolean" || (typeof value === "number" && Number.isInteger(value));
    if (kind === python.float) return value instanceof Real || (typeof value === "number" && !Number.isInteger(value));
    if (kind === python.Mapping || kind === python.dict) return isMap(value);
    return kind === python.list ? Array.isArray(value) : typeof value === { [python.bool.name]: "boolean", [python.str.name]: "string" }[kind.name];
  }),
  Mapping: "Mapping",
  quote: (text) => (text && !/[^\w@%+=:,./-]/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`),
  fullmatch: (pattern, text) => new Pattern(pattern).fullmatch(text),
  findall: (pattern, text) => new Pattern(pattern).findall(text),
  split: (pattern, text) => text.split(new RegExp(pattern)),
  sub: (pattern, to, text) => text.replace(new RegExp(pattern, "g"), to.replace(/\\(\d)/g, "$$$1")),
  SequenceMatcher: (_, left, right) => ({ ratio: () => likeness(left, right) }),
  get_close_matches: (word, names, { n = 3, cutoff = 0.6 } = {}) => [...iterated(names)].map((name) => [likeness(name, word), name])
    .filter(([alike]) => alike >= cutoff).sort(([one, name], [other, next]) => other - one || (name < next ? 1 : -1)).slice(0, n).map(([, name]) => name),
  finditer: (pattern, text) => [...text.matchAll(new RegExp(pattern, "g"))].map(withEnds),
  round: Math.round,
};

const TYPES = [python.bool, python.int, python.float, python.str, python.list, python.dict];
python.dict.fromkeys = (items, value = null) => new Map([...iterated(items)].map((item) => [item, value]));

// How much alike two texts are, from 0 to 1, by the longest parts that both have in order, as difflib counts it.
function likeness(left, right) {
  const matched = (one, other) => {
    let [most, start, at] = [0, 0, 0];
    let before = [];
    for (let place = 0; place < one.length; place++) {
      const runs = [];
      for (let next = 0; next < other.length; next++) {
        if (one[place] !== other[next]) continue;
        runs[next] = (before[next - 1] ?? 0) + 1;
        if (runs[next] > most) [most, start, at] = [runs[next], place - runs[next] + 1, next - runs[next] + 1];
      }
      before = runs;
    }
    return most && most + matched(one.slice(0, start), other.slice(0, at)) + matched(one.slice(start + most), other.slice(at + most));
  };
  return left.length + right.length ? (2 * matched(left, right)) / (left.length + right.length) : 1;
}

// The largest or smallest of numbers, or of items by a key; of no items the usual value.
function extreme(of, values) {
  const by = values.at(-1)?.key;
  if (by) return [...iterated(values[0])].reduce((best, item) => (of(by(item), by(best)) !== by(best) ? item : best));
  const usual = values.at(-1)?.default_ === undefined ? undefined : values.pop().default_;
  const items = values.length === 1 ? [...iterated(values[0])] : values;
  return items.length || usual === undefined ? of(...items) : usual;
}

const METHODS = {
  text: {
    join: (text, items) => [...iterated(items)].join(text), replace: (text, from, to) => text.replaceAll(from, to),
    startswith: (text, starts) => [starts].flat().some((start) => text.startsWith(start)), count: (text, part) => text.split(part).length - 1, endswith: (text, ends) => [ends].flat().some((end) => text.endsWith(end)),
    strip: (text, signs) => { if (signs === undefined) return text.trim(); while (text && signs.includes(text[0])) text = text.slice(1); return METHODS.text.rstrip(text, signs); }, rstrip: (text, signs = " ") => { while (text && signs.includes(text.at(-1))) text = text.slice(0, -1); return text; },
    lower: (text) => text.toLowerCase(), split: (text, mark) => (mark === undefined ? text.split(/\s+/).filter(Boolean) : text.split(mark)),
    isascii: (text) => /^[\0-\x7f]*$/.test(text), isdecimal: (text) => /^\d+$/.test(text), isalnum: (text) => /^[\p{L}\p{N}]+$/u.test(text),
    rsplit: (text, mark, most) => { const parts = text.split(mark); return parts.length > most + 1 ? [parts.slice(0, -most).join(mark), ...parts.slice(-most)] : parts; },
    rpartition: (text, mark) => { const place = text.lastIndexOf(mark); return place < 0 ? ["", "", text] : [text.slice(0, place), mark, text.slice(place + mark.length)]; },
    isprintable: (text) => text === " " || !/[\p{C}\p{Z}]/u.test(text),
    partition: (text, mark) => { const place = text.indexOf(mark); return place < 0 ? [text, "", ""] : [text.slice(0, place), mark, text.slice(place + mark.length)]; },
    removeprefix: (text, start) => (text.startsWith(start) ? text.slice(start.length) : text),
    removesuffix: (text, end) => (end && text.endsWith(end) ? text.slice(0, -end.length) : text),
    format: (text, ...values) => text.replace(/\{(\w*)\}/g, (_, name) => str(name ? values[0][name] : values.shift())),
  },
  map: {
    items: (map) => [...map], keys: (map) => [...map.keys()], values: (map) => [...map.values()],
    get: (map, key, usual = null) => (map.has(keyIn(map, key)) ? map.get(keyIn(map, key)) : usual),
    setdefault: (map, key, usual) => { if (!map.has(key)) map.set(key, usual); return map.get(key); },
    pop: (map, key, usual) => { const value = map.has(key) ? map.get(key) : usual; map.delete(key); return value; },
  },
  list: {
    append: (list, item) => { list.push(item); }, add: (set, item) => { if (isNotIn(item, set)) set.push(item); },
    update: (set, items) => { for (const item of iterated(items)) METHODS.list.add(set, item); },
    index: (list, item) => { const place = list.findIndex((other) => equal(other, item)); if (place < 0) throw new ValueError(item); return place; },
  },
  number: { is_integer: (number) => Number.isInteger(plain(number)) },
};

function method(name, owner, ...values) {
  const kind = typeof owner === "string" ? "text" : Array.isArray(owner) ? "list" : isMap(owner) ? "map" : typeof plain(owner) === "number" ? "number" : "";
  return METHODS[kind]?.[name] ? METHODS[kind][name](owner, ...values) : owner[name](...values);
}
