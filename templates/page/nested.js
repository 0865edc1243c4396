// Plain data in JSON, TOML and YAML, as the commands read it. What is not read to the same data is no data here.
class Unwritten extends Error {} // a text that is written as the page does not read it

const LARGEST = 2 ** 16; // characters of a file
const DEEPEST = 8; // tables and lists inside each other
const ESCAPED = { n: "\n", t: "\t", '"': '"', "\\": "\\" };
const QUOTED = /^"((?:[^"\\]|\\["\\nt])*)"$|^'((?:[^']|'')*)'$/;
const TIMES = /^\d{4}-\d\d?-\d\d?/;

const realOf = (number) => (Number.isInteger(number) ? new Real(number) : number);

function wholeOf(word) {
  const number = Number(word.replaceAll("_", "")) + 0;
  if (!Number.isSafeInteger(number)) throw new Unwritten(word);
  return number;
}

// The text of a word in quotes; nothing for other words. Quotes inside of single ones are doubled in YAML alone.
function unquoted(word, isYaml) {
  const [, escaped, single] = QUOTED.exec(word) ?? [];
  if (escaped !== undefined) return escaped.replace(/\\(.)/g, (_, sign) => ESCAPED[sign]);
  if (single !== undefined && (isYaml || !single.includes("'"))) return single.replaceAll("''", "'");
  return undefined;
}

// The value of a word of TOML.
function tomlValue(word, depth = 1) {
  const text = unquoted(word, false);
  if (text !== undefined) return text;
  if (/^[[{]/.test(word)) return insideOf(word, depth, tomlValue, /^([A-Za-z0-9_-]+)\s*=\s*(.+)$/s);
  if (word === "true" || word === "false") return word === "true";
  if (/^[+-]?(0|[1-9](_?\d)*)$/.test(word)) return wholeOf(word);
  if (/^[+-]?(0|[1-9](_?\d)*)(\.\d(_?\d)*)?([eE][+-]?\d(_?\d)*)?$/.test(word)) return realOf(Number(word.replaceAll("_", "")));
  throw new Unwritten(word);
}

// The value of a word of YAML 1.1, which has more words for true and false, and floats with a point alone.
function yamlValue(word, depth = 1) {
  const text = unquoted(word, true);
  if (text !== undefined) return text;
  if (/^[[{]/.test(word)) return insideOf(word, depth, flowValue, /^((?:[A-Za-z_][\w./-]*|"[^"\\]*"|'[^']*')):\s+(.+)$/s);
  if (/^(yes|Yes|YES|true|True|TRUE|on|On|ON)$/.test(word)) return true;
  if (/^(no|No|NO|false|False|FALSE|off|Off|OFF)$/.test(word)) return false;
  if (/^(|~|null|Null|NULL)$/.test(word)) return null;
  if (/^[+-]?(0|[1-9][\d_]*)$/.test(word)) return wholeOf(word);
  if (/^([+-]?\d[\d_]*\.[\d_]*|\.\d[\d_]*)([eE][+-]\d+)?$/.test(word)) return realOf(Number(word.replaceAll("_", "")));
  const isNumber = /^[+-]?(0b[01_]+|0[0-7_]+|0x[\da-fA-F_]+|\d[\d_]*(:[0-5]?\d)+(\.[\d_]*)?|\.(inf|Inf|INF)|\.(nan|NaN|NAN))$/.test(word);
  if (isNumber || TIMES.test(word) || word === "=" || /^[&*!|>%@`"'{}[\],#]|^[-?:](\s|$)|:(\s|$)|\s#|[\t\0-\x1f\x7f-\x9f\ufeff]/.test(word)) throw new Unwritten(word);
  return word;
}

// A value inside of a list or table of YAML in one line: words with signs of their own are in quotes there.
function flowValue(word, depth) {
  if (!/^[[{"']/.test(word) && (!word || /[^\w ./+@=-]|^[-?:]/.test(word) && !/^-?[\d._]/.test(word))) throw new Unwritten(word);
  return yamlValue(word, depth);
}

// A list or a table in one line.
function insideOf(word, depth, valueOf, pair) {
  if (depth >= DEEPEST) throw new Unwritten(word);
  if (word.at(-1) !== { "[": "]", "{": "}" }[word[0]]) throw new Unwritten(word);
  const items = partsOf_(word.slice(1, -1));
  if (word[0] === "[") return items.map((item) => valueOf(item, depth + 1));
  const table = new Map();
  for (const item of items) {
    const [, key, value] = pair.exec(item) ?? [];
    if (key === undefined) throw new Unwritten(item);
    addTo(table, unquoted(key, true) ?? key, valueOf(value.trim(), depth + 1));
  }
  return table;
}

// The parts between commas that stand in no brackets and no quotes; a comma may stand behind the last.
function partsOf_(text) {
  const parts = [""];
  let [depth, mark, escaped] = [0, "", false];
  for (const sign of text) {
    if (mark) {
      mark = sign === mark && !escaped ? "" : mark;
      escaped = sign === "\\" && !escaped;
    } else if (sign === '"' || sign === "'") mark = sign;
    else if ("[{".includes(sign)) depth += 1;
    else if ("]}".includes(sign)) depth -= 1;
    if (sign === "," && !depth && !mark) parts.push("");
    else parts[parts.length - 1] += sign;
  }
  if (depth || mark) throw new Unwritten(text);
  const plainParts = parts.map((part) => part.trim());
  if (!plainParts.at(-1)) plainParts.pop();
  if (plainParts.includes("")) throw new Unwritten(text);
  return plainParts;
}

function addTo(table, key, value) {
  if (table.has(key)) throw new Unwritten(`${key} is there twice`);
  table.set(key, value);
}

// A line without its comment, which begins with a number sign outside of quotes.
function uncommented(line, needsBlank) {
  let mark = "";
  for (const [place, sign] of [...line].entries()) {
    if (mark) mark = sign === mark ? "" : mark;
    else if ((sign === '"' || sign === "'") && (!needsBlank || !place || /[\s[{,:]/.test(line[place - 1]))) mark = sign;
    else if (sign === "#" && (!needsBlank || !place || /\s/.test(line[place - 1]))) return line.slice(0, place);
  }
  return line;
}

// Tables, and keys with values in one line or with lists over several.
function fromToml(text) {
  const data = new Map();
  const made = new Set();
  let [table, begun] = [data, ""];
  const isOpen = (value) => (value.match(/[[{]/g) ?? []).length > (value.match(/[\]}]/g) ?? []).length;
  for (const line of text.split(/\r?\n/)) {
    const joined = `${begun} ${uncommented(line, false)}`.trim();
    begun = "";
    const [, section] = /^\[\s*([\w-]+(?:\.[\w-]+)*)\s*\]$/.exec(joined) ?? [];
    const [, key, value] = /^([\w-]+)\s*=\s*(.+)$/.exec(joined) ?? [];
    if (!joined) continue;
    if (section) {
      if (made.has(section)) throw new Unwritten(joined);
      made.add(section);
      table = section.split(".").reduce((outer, name) => {
        if (!outer.has(name)) outer.set(name, Object.assign(new Map(), { isOpen: true }));
        if (!outer.get(name)?.isOpen) throw new Unwritten(joined);
        return outer.get(name);
      }, data);
    } else if (key === undefined) throw new Unwritten(joined);
    else if (isOpen(value) && /^[[{]/.test(value)) begun = joined;
    else addTo(table, key, tomlValue(value));
  }
  if (begun) throw new Unwritten(begun);
  return data;
}

// Tables and lists by their indents.
function fromYaml(text) {
  const lines = [];
  let isAlone = true; // a comment or an empty line ends a text of several lines
  for (const written of text.split(/\r?\n/)) {
    if (written.includes("\t")) throw new Unwritten("a tabulator");
    const line = uncommented(written, true).trimEnd();
    const isPlain = line === written.trimEnd();
    if (!line || (line === "---" && !lines.length)) {
      isAlone = true;
      continue;
    }
    const indent = line.search(/[^ ]/);
    if (/^(---|\.\.\.|%)/.test(line)) throw new Unwritten(line);
    lines.push({ indent, text: line.slice(indent), isAlone });
    isAlone = !isPlain;
  }
  const reader = { lines, place: 0 };
  const data = lines.length ? yamlBlock(reader, 1) : null;
  if (reader.place < lines.length) throw new Unwritten(lines[reader.place].text);
  return data;
}

const isItem = (line) => /^-(\s|$)/.test(line.text);
const PAIR = /^((?:--)?[A-Za-z_][\w./-]*|"[^"\\]*"|'[^']*')\s*:(?:\s+(.*))?$/;

// The table or list that begins at a line, with all lines of its indent.
function yamlBlock(reader, depth) {
  const { lines } = reader;
  const { indent } = lines[reader.place];
  if (depth > DEEPEST) throw new Unwritten(lines[reader.place].text);
  const isList = isItem(lines[reader.place]);
  const block = isList ? [] : new Map();
  while (reader.place < lines.length && lines[reader.place].indent === indent && isItem(lines[reader.place]) === isList) {
    const line = lines[reader.place];
    if (isList) {
      const rest = line.text.slice(1).trimStart();
      if (rest && (PAIR.test(rest) || isItem({ text: rest }))) {
        lines[reader.place] = { indent: indent + line.text.length - rest.length, text: rest };
        block.push(yamlBlock(reader, depth + 1));
      } else block.push(yamlInner(reader, rest, indent + 1, depth));
    } else {
      const [, key, value = ""] = PAIR.exec(line.text) ?? [];
      if (key === undefined || (!/^["']/.test(key) && typeof yamlValue(key) !== "string")) throw new Unwritten(line.text);
      const next = lines[reader.place + 1];
      const isBelow = !value && next && next.indent === indent && isItem(next);
      addTo(block, unquoted(key, true) ?? key, yamlInner(reader, value, isBelow ? indent : indent + 1, depth));
    }
  }
  if (reader.place < lines.length && lines[reader.place].indent > indent) throw new Unwritten(lines[reader.place].text);
  return block;
}

// The value of one line, of a text that goes on below it, or of the block below it.
function yamlInner(reader, word, least, depth) {
  const { lines } = reader;
  const { indent } = lines[reader.place];
  reader.place += 1;
  const isBelow = () => lines[reader.place]?.indent >= least;
  if (!word) return isBelow() ? yamlBlock(reader, depth + 1) : yamlValue(word);
  let whole = word;
  for (; lines[reader.place]?.indent > indent; reader.place += 1) {
    const { text, isAlone } = lines[reader.place];
    if (isAlone || /^["'[{]/.test(word) || !yamlValue(word)) throw new Unwritten(text);
    whole += ` ${text}`;
  }
  return yamlValue(whole, depth + 1);
}

// JSON, whose numbers are floats with a point or exponent, and whose keys stand in an object once.
function jsonData(text) {
  JSON.parse(text);
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[^\s"{}[\],:]+|[{}[\],:]/g);
  const words = { true: true, false: false, null: null };
  let place = 0;
  const next = (depth) => {
    const token = tokens[place++];
    if (token === "{" || token === "[") {
      if (depth > DEEPEST) throw new Unwritten("tables and lists inside each other");
      const [table, list] = [new Map(), []];
      while (!"}]".includes(tokens[place])) {
        if (token === "[") list.push(next(depth + 1));
        else {
          const key = JSON.parse(tokens[place]);
          place += 2;
          const value = next(depth + 1);
          if (table.has(key)) throw new InputError(key, value, "must not be there twice");
          table.set(key, value);
        }
        if (tokens[place] === ",") place += 1;
      }
      place += 1;
      return token === "{" ? table : list;
    }
    if (token[0] === '"') return JSON.parse(token);
    if (token in words) return words[token];
    return /[.eE]/.test(token) ? realOf(Number(token)) : wholeOf(token);
  };
  return next(1);
}

// The data of a text, whatever of the three it is.
function nestedData(text) {
  const trimmed = text.trim();
  if (text.length > LARGEST) throw new Unwritten(`more than ${LARGEST} characters`);
  if (trimmed.startsWith("{")) return jsonData(trimmed);
  return isToml(trimmed) ? fromToml(text) : fromYaml(text);
}

const isToml = (text) => /^\[\[?[\w."-]+\]\]?\s*(#.*)?$/m.test(text);
