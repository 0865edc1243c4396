// A launch script in bash, read and never run, as the commands read it: variables, arrays, decided conditions and the commands
// that it would start. A script with anything else is none here.
const LONGEST_WORD = 2 ** 18;
const OPERATORS = ["&&", "||", ";;", ";", "&", "|", "(", ")", "\n"];
const RESERVED = ["if", "then", "elif", "else", "fi", "for", "while", "until", "case", "esac", "do", "done", "function", "select", "time", "coproc", "{", "}", "[[", "!", "in"];

// Marks in words of what stands in quotes: words are lists of parts.
class ShellReader {
  constructor(text) {
    Object.assign(this, { text: text.replaceAll("\r\n", "\n").replace(/[\ue000\ue001]/g, ""), place: 0, taken: 0 });
  }

  unwritten(what) {
    throw new Unwritten(`line ${this.line()}: ${what}`);
  }

  line(place = this.place) {
    return this.text.slice(0, place).split("\n").length + this.taken;
  }

  // The text that a command is given as input, which is taken out of the script.
  document() {
    const [head, , single, double, plain] = /^<<(-?)[ \t]*(?:'(\w+)'|"(\w+)"|(\w+))/.exec(this.text.slice(this.place)) ?? this.unwritten("<<");
    if (head[2] === "-" || head.startsWith("<<-")) this.unwritten("<<-");
    this.place += head.length;
    const end = single ?? double ?? plain;
    const start = this.text.indexOf("\n", this.place) + 1;
    const [whole, body] = (start && new RegExp(`^((?:[^\\n]*\\n)*?)${end}(?=\\n|$)`).exec(this.text.slice(start))) || this.unwritten(end);
    this.text = this.text.slice(0, start) + this.text.slice(start + whole.length);
    this.taken += body.split("\n").length - 1;
    return { body, isQuoted: plain === undefined };
  }

  // White space and comments, but for ends of lines.
  blanks() {
    const [space] = /^(?:[ \t]|\\\n)*(?:#[^\n]*)?/.exec(this.text.slice(this.place));
    this.place += space.length;
  }

  operator() {
    this.blanks();
    return OPERATORS.find((sign) => this.text.startsWith(sign, this.place)) ?? "";
  }

  // The plain word that stands next, without taking it.
  next() {
    this.blanks();
    return /^[^\s;&|()<>"'$`\\]*/.exec(this.text.slice(this.place))[0];
  }

  take(word) {
    if (this.next() !== word && this.operator() !== word) this.unwritten(`no ${word}`);
    this.place += word.length;
  }

  ends() {
    while (["\n", ";"].includes(this.operator())) this.place += 1;
  }

  // Statements until one of some words.
  statements(ends = []) {
    const list = [];
    for (this.ends(); this.place < this.text.length; this.ends()) {
      if (ends.includes(this.next())) return list;
      const statement = this.chain();
      if (statement.kind === "command" && !statement.words.length && !statement.assigned.length) this.unwritten("no command");
      list.push(statement);
      const sign = this.operator();
      if (sign && !["\n", ";", "&"].includes(sign)) this.unwritten(sign);
      if (sign) this.place += 1;
    }
    if (ends.length) this.unwritten(`no ${ends.at(-1)}`);
    return list;
  }

  // Commands joined by && and ||.
  chain() {
    let left = this.pipeline();
    for (let sign = this.operator(); sign === "&&" || sign === "||"; sign = this.operator()) {
      this.place += 2;
      while (this.operator() === "\n") this.place += 1;
      left = { kind: "list", sign, left, right: this.pipeline(), line: left.line };
    }
    return left;
  }

  pipeline() {
    const parts = [this.command()];
    while (this.operator() === "|") {
      this.place += 1;
      while (this.operator() === "\n") this.place += 1;
      parts.push(this.command());
    }
    return parts.length === 1 ? parts[0] : { kind: "pipeline", parts, line: parts[0].line };
  }

  command() {
    const word = this.next();
    const line = this.line();
    if (word === "if") return this.condition(line);
    if (word === "for" || word === "while" || word === "until") return this.loop(word, line);
    if (word === "[" || word === "[[") return this.test(word, line);
    if (word === "!") {
      this.place += 1;
      return { kind: "not", inner: this.command(), line };
    }
    if (RESERVED.includes(word) || word === "((") this.unwritten(word);
    const [assigned, words, documents] = [[], [], []];
    for (;;) {
      const sign = this.operator();
      if (sign === "(" || this.place >= this.text.length || sign) {
        if (sign === "(") this.unwritten("( )");
        break;
      }
      const redirected = /^(?:\d*|&)(?:>>?|<)(?:&\d+-?|&-)?/.exec(this.text.slice(this.place));
      if (redirected) {
        if (/^\d+<<|^<<<|^[<>]\(/.test(this.text.slice(this.place))) this.unwritten("<<<");
        if (this.text.startsWith("<<", this.place)) {
          documents.push(this.document());
          continue;
        }
        this.place += redirected[0].length;
        if (!redirected[0].includes("&", 1) || redirected[0][0] === "&") {
          this.blanks();
          this.word();
        }
        continue;
      }
      const isDeclared = ["export", "declare", "local", "readonly", "typeset"].includes(words[0]?.plain);
      const [begun, name, plus] = /^([A-Za-z_]\w*)(\+?)=/.exec(this.text.slice(this.place)) ?? [];
      if (begun && (!words.length || isDeclared)) {
        this.place += begun.length;
        assigned.push({ name, isAdded: plus === "+", value: this.text[this.place] === "(" ? this.list() : this.word(true), line });
      } else if (/^[A-Za-z_]\w*\[[^\]\s]*\]\+?=/.test(this.text.slice(this.place))) this.unwritten("an element of an array");
      else words.push(this.word());
    }
    if (this.operator() === "(") this.unwritten("a function");
    return { kind: "command", assigned, words, documents, line };
  }

  list() {
    const items = [];
    this.place += 1;
    for (;;) {
      while (this.operator() === "\n") this.place += 1;
      if (this.operator() === ")") break;
      if (this.operator() || this.place >= this.text.length || /^[<>]/.test(this.text.slice(this.place))) this.unwritten("an array");
      if (/^\[[^\]]*\]=/.test(this.text.slice(this.place))) this.unwritten("an array by names");
      items.push(this.word());
    }
    this.place += 1;
    return { items };
  }

  condition(line) {
    const branches = [];
    this.take("if");
    for (let word = "if"; word !== "fi";) {
      const tests = word === "else" ? null : this.statements(["then"]);
      if (tests) this.take("then");
      const body = this.statements(["elif", "else", "fi"]);
      branches.push({ test: tests?.at(-1), isElse: !tests, body, line });
      word = this.next();
      this.take(word);
    }
    this.afterwards();
    return { kind: "if", branches, line };
  }

  loop(word, line) {
    this.take(word);
    if (word === "for") {
      if (!/^[A-Za-z_]\w*$/.test(this.next())) this.unwritten("for");
      this.take(this.next());
      if (this.next() === "in") this.take("in");
      while (!["\n", ";"].includes(this.operator())) {
        if (this.operator() || this.place >= this.text.length) this.unwritten("for");
        this.word();
      }
      this.ends();
    } else this.statements(["do"]);
    this.take("do");
    this.statements(["done"]);
    this.take("done");
    this.afterwards();
    return { kind: "loop", line };
  }

  // Nothing but an end stands behind a compound command.
  afterwards() {
    const sign = this.operator();
    if (!sign && this.place < this.text.length) this.unwritten("words behind a compound command");
  }

  // A test of one or two words.
  test(open, line) {
    const close = open === "[" ? "]" : "]]";
    const words = [];
    this.place += open.length;
    if (!/^\s/.test(this.text.slice(this.place))) this.unwritten(open);
    while (this.next() !== close) {
      const [sign] = /^[<>]/.exec(this.text.slice(this.place)) ?? [this.operator()];
      if (sign || this.place >= this.text.length) this.unwritten(`${open} with ${sign}`);
      words.push(this.word());
    }
    this.place += close.length;
    let [isNot, own] = [false, words];
    if (own[0]?.plain === "!") [isNot, own] = [true, own.slice(1)];
    const sign = own[own.length - 2]?.plain;
    const isUnary = own.length === 2 && /^-[a-zA-Z]$/.test(sign);
    const isBinary = own.length === 3 && /^(==?|!=|-eq|-ne|-lt|-le|-gt|-ge)$/.test(sign);
    if (!(own.length === 1 || isUnary || isBinary)) this.unwritten(open);
    if (own.length === 1 && /^-|^!|=/.test(own[0].plain ?? "")) this.unwritten(open);
    if (isBinary && own[2].parts.some((part) => part.literal && /[*?[]/.test(part.literal))) this.unwritten("a pattern");
    return { kind: "test", isNot, words: own, sign: isUnary || isBinary ? sign : "", line };
  }

  // A word: parts that are literal, quoted, or expanded.
  word(mayBeEmpty = false) {
    const begun = this.place;
    const parts = [];
    for (;;) {
      const rest = this.text.slice(this.place);
      const [literal] = /^(?:\\[^\n]|[^\s;&|()<>"'$`\\])+/.exec(rest) ?? [];
      if (/#|\\\s/.test(literal ?? "") || /^\\\n\S/.test(rest)) this.unwritten(literal ?? "a word in two lines");
      if (literal) {
        parts.push({ literal: literal.replace(/\\([^])/g, "$1"), isEscaped: literal.includes("\\") });
        this.place += literal.length;
      } else if (rest[0] === "'") parts.push({ quoted: [{ literal: this.upTo(/^'([^']*)'/) }] });
      else if (rest[0] === '"') parts.push({ quoted: this.quoted() });
      else if (rest[0] === "$" || rest[0] === "`") parts.push(this.expansion(false));
      else break;
    }
    if (!parts.length && !mayBeEmpty) this.unwritten(this.text.slice(this.place, this.place + 10));
    const written = this.text.slice(begun, this.place);
    return { parts, plain: /["'$`\\]/.test(written) ? undefined : written, written };
  }

  upTo(pattern) {
    const [whole, inner] = pattern.exec(this.text.slice(this.place)) ?? this.unwritten("a quotation mark without its pair");
    this.place += whole.length;
    return inner;
  }

  quoted() {
    const parts = [];
    for (this.place += 1; this.text[this.place] !== '"';) {
      const [literal] = /^(?:\\[^]|[^"$`\\])+/.exec(this.text.slice(this.place)) ?? [];
      if (this.place >= this.text.length) this.unwritten("a quotation mark without its pair");
      if (literal) {
        parts.push({ literal: literal.replace(/\\([\n$`"\\])/g, (_, sign) => (sign === "\n" ? "" : sign)) });
        this.place += literal.length;
      } else parts.push(this.expansion(true));
    }
    this.place += 1;
    return parts;
  }

  // A parameter, a sum, or the output of a command, behind its dollar sign.
  expansion(isQuoted) {
    const rest = this.text.slice(this.place);
    const [simple, name] = /^\$([A-Za-z_]\w*|[0-9@*#?$!-])/.exec(rest) ?? [];
    if (simple) {
      if (/^\$\d\d/.test(rest)) this.unwritten(rest.slice(0, 3));
      this.place += simple.length;
      return { name, written: simple };
    }
    const [sum, inner] = /^\$\(\(([^()$`"'{}]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}|\((?:[^()])*\))*\)\)/.exec(rest) ?? [];
    if (sum) {
      this.place += sum.length;
      return { sum: sum.slice(3, -2), written: sum };
    }
    if (rest.startsWith("${")) return this.parameter(isQuoted);
    if (rest.startsWith("$(") && !rest.startsWith("$((")) return this.output();
    if (rest[0] === "`") return outputOf(this.upTo(/^`([^`\\]*)`/));
    return this.unwritten("a dollar sign");
  }

  output() {
    const [whole] = /^\$\((?:[^()"'`\\]|"[^"`\\()]*"|'[^']*'|\$?\((?:[^()"'`\\]|"[^"`\\()]*"|'[^']*')*\))*\)/.exec(this.text.slice(this.place)) ?? this.unwritten("$( )");
    this.place += whole.length;
    return outputOf(whole.slice(2, -1));
  }

  parameter(isQuoted) {
    const begun = this.place;
    const [other] = /^\$\{(?:[#!][A-Za-z_]\w*(?:\[[@*]\])?|[A-Za-z_]\w*(?:\[[@*\d]+\])?(?:%%?|##?|\/\/?|\^\^?|,,?|:(?=\d))[^{}"'`$\\()\s]*)\}/.exec(this.text.slice(begun)) ?? [];
    if (other) {
      this.place += other.length;
      return { unknown: other, isOf: true };
    }
    const [head, name, index] = /^\$\{([A-Za-z_]\w*|\d+)(?:\[([@*]|\d+)\])?/.exec(this.text.slice(begun)) ?? [];
    if (head === undefined) this.unwritten("${ }");
    this.place += head.length;
    const [sign] = /^(:[-=+?]|[-=+?])?/.exec(this.text.slice(this.place));
    this.place += sign?.length ?? 0;
    const parts = [];
    while (this.text[this.place] !== "}") {
      const rest = this.text.slice(this.place);
      const [literal] = /^[^\s;&|()<>"'$`\\{}]+/.exec(rest) ?? [];
      if (!sign) this.unwritten("${ } with signs");
      if (literal) {
        parts.push({ literal });
        this.place += literal.length;
      } else if (rest[0] === "$") parts.push(this.expansion(isQuoted));
      else if (rest[0] === '"' && !isQuoted) parts.push({ quoted: this.quoted() });
      else if (rest[0] === "'" && !isQuoted) parts.push({ quoted: [{ literal: this.upTo(/^'([^']*)'/) }] });
      else this.unwritten("${ } with a default");
    }
    this.place += 1;
    return { name, index: index ?? "", sign: sign ?? "", parts, written: this.text.slice(begun, this.place) };
  }
}

// A script that is followed: its variables, the commands with their words, and notes on what is left out.
class Script {
  constructor(text, values) {
    Object.assign(this, { given: values, variables: new Map(values), commands: [], notes: [] });
    const reader = new ShellReader(text);
    this.all(reader.statements());
  }

  // Follow the script that a scheduler or another shell is given as input.
  document({ body, isQuoted }) {
    const reader = new ShellReader(body);
    let text = "";
    while (!isQuoted && reader.place < body.length) {
      const [literal] = /^(?:\\[^]|[^\\$]|\$(?![A-Za-z_0-9{]))+/.exec(body.slice(reader.place)) ?? [];
      if (literal) reader.place += literal.length;
      text += literal ?? this.pieces(reader.expansion(true), true).map(([piece]) => piece ?? " ").join("");
    }
    this.depth = (this.depth ?? 0) + 1;
    if (this.depth <= 8) this.all(new ShellReader(isQuoted ? body : unmarked(text)).statements());
    this.depth -= 1;
  }

  all(statements) {
    for (const statement of statements) this.one(statement);
  }

  one(statement) {
    if (statement.kind === "command") this.command(statement);
    else if (statement.kind === "pipeline") this.all(statement.parts);
    else if (statement.kind === "list") this.list(statement);
    else if (statement.kind === "if") this.condition(statement);
    else if (statement.kind === "loop") this.note(statement, "this loop is not followed");
  }

  note(statement, said) {
    this.notes.push(`line ${statement.line}: ${said}`);
  }

  command(statement) {
    this.started(statement);
    if (["sbatch", "bash", "sh"].includes(statement.words[0]?.plain) && !statement.assigned.length) for (const document of statement.documents) this.document(document);
  }

  started(statement) {
    for (const { name, isAdded, value } of statement.assigned) {
      if (this.given.has(name)) continue;
      const made = value.items ? value.items.flatMap((item) => this.words(item)) : this.word(value);
      this.variables.set(name, assignedTo(this.variables.get(name), made, isAdded));
    }
    const [first] = statement.words;
    if (!first || ["export", "declare", "local", "readonly", "typeset"].includes(first.plain)) return;
    if (first.plain === "unset") {
      for (const { written } of statement.words.slice(1)) if (!this.given.has(written)) this.variables.delete(written);
      return;
    }
    const words = statement.words.flatMap((item) => this.words(item));
    if (!words.length) return;
    if (words[0] === "source" || words[0] === ".") this.note(statement, `${words[0]} ${words.slice(1, 2).join(" ")} is not followed`);
    else {
      const command = words[0] === "eval" ? shellSplit(words.slice(1).join(" ")) : words.flatMap((word) => (word.includes(".py") && /[ \t\n]/.test(word) ? shellSplit(word) : [word]));
      if (command.length) this.commands.push(command);
    }
  }

  list({ left, sign, right }) {
    let decided = this.holds(left);
    const isTest = left.kind === "test" || left.kind === "not";
    if (decided === null && isTest) return this.leftOut([right]);
    if (!isTest) {
      this.one(left);
      decided = true;
    }
    if (decided === (sign === "&&")) this.one(right);
    return undefined;
  }

  condition({ branches }) {
    for (const { test, isElse, body } of branches) {
      const decided = test ? this.holds(test) : isElse;
      if (decided === null) this.leftOut(body);
      else if (decided) return this.all(body);
    }
    return undefined;
  }

  leftOut(statements) {
    const assigns = (item) => item && (item.assigned?.length > 0 || [item.left, item.right, item.inner, ...(item.parts ?? []),
      ...(item.branches ?? []).flatMap(({ test, body }) => [test, ...body])].some(assigns));
    if (statements.some(assigns)) this.note(statements[0], "the condition of this is not decided, so it is left out");
  }

  // Tell if a condition holds; null where a run alone shows it.
  holds(statement) {
    const not = (value) => (value === null ? null : !value);
    const joined = (left, right) => (left === false || right === false ? false : left === null || right === null ? null : true);
    if (statement.kind === "list") {
      const [left, right] = [this.holds(statement.left), this.holds(statement.right)];
      return statement.sign === "&&" ? joined(left, right) : not(joined(not(left), not(right)));
    }
    if (statement.kind === "not") return not(this.holds(statement.inner));
    if (statement.kind === "test") return statement.isNot ? not(this.truth(statement)) : this.truth(statement);
    if (statement.kind === "command" && statement.words.length === 1 && !statement.assigned.length && ["true", ":", "false"].includes(statement.words[0].plain)) return statement.words[0].plain !== "false";
    return null;
  }

  truth({ words, sign }) {
    const texts = words.map((word) => (word.plain === sign && sign ? sign : emptyUnlessSet(this.word(word))));
    if (words.length === 1) return texts[0] === null ? null : Boolean(texts[0]);
    if (words.length === 2) return texts[1] === null || !["-z", "-n"].includes(sign) ? null : !texts[1] === (sign === "-z");
    const [first, , other] = texts;
    if (first === null || other === null) return null;
    if (["=", "==", "!="].includes(sign)) {
      const isQuoted = words[2].parts.length === 1 && words[2].parts[0].quoted !== undefined;
      if (!isQuoted && /[*?[]/.test(other)) throw new Unwritten("a pattern");
      return !isQuoted && other.length > 200 ? null : (first === other) === (sign !== "!=");
    }
    const [left, right] = [first || "0", other || "0"].map((word) => (/^\s*-?[0-9]{1,15}\s*$/.test(word) ? Number(word) : null));
    if (left === null || right === null) return null;
    return { "-eq": left === right, "-ne": left !== right, "-lt": left < right, "-le": left <= right, "-gt": left > right, "-ge": left >= right }[sign];
  }

  // The one text of a word in an assignment.
  word(word) {
    return word.parts.flatMap((part) => this.pieces(part, true)).map(([piece]) => (piece === null ? " " : piece)).join("");
  }

  // The words that an argument becomes: values outside of quotes fall apart at white space.
  words(word) {
    const expanded = [];
    let open = null;
    for (const [piece, isQuoted] of word.parts.flatMap((part) => this.pieces(part, false))) {
      const parts = isQuoted ? [piece ?? ""] : (piece ?? "").split(/[ \t\n]+/);
      for (const [place, part] of parts.entries()) {
        const isApart = piece === null || place > 0;
        if (isApart && open !== null) {
          expanded.push(open);
          open = null;
        }
        if (part || (isQuoted && piece !== null)) open = (open ?? "") + part;
      }
    }
    const words = open === null ? expanded : [...expanded, open];
    if (words.join(" ").length > LONGEST_WORD) throw new Unwritten("long words");
    return words;
  }

  // Parts of a word with whether each is quoted; null between the elements of an array.
  pieces(part, isQuoted) {
    if (part.literal !== undefined) return [[part.literal, isQuoted || Boolean(part.isEscaped)]];
    if (part.unknown) return [[mark(part.unknown), part.isOf ? isQuoted : true]];
    if (part.sum !== undefined) return [[this.sum(part), true]];
    if (part.summed) return [[this.summed(part.summed), true]];
    if (part.quoted) {
      const [only] = part.quoted;
      if (part.quoted.length === 1 && only.index === "@" && !only.sign && !(this.variables.get(only.name)?.length > 0) && typeof this.variables.get(only.name) !== "string") return [];
      return [["", true], ...part.quoted.flatMap((item) => this.pieces(item, true))];
    }
    return this.parameter(part, isQuoted);
  }

  parameter({ name, index = "", sign = "", parts = [] }, isQuoted) {
    const value = this.variables.get(name);
    const all = Array.isArray(value) ? value : value === undefined ? [] : [value];
    const isWhole = index === "@" || index === "*";
    const elements = isWhole ? all : all.slice(Number(index || 0), Number(index || 0) + 1);
    const isAbsent = !elements.length || (sign[0] === ":" && !elements.some(Boolean));
    const [isDefault, isOther] = [/^:?[-=]$/.test(sign), /^:?\+$/.test(sign)];
    if ((isDefault && isAbsent) || (isOther && !isAbsent)) return [["", isQuoted], ...parts.flatMap((part) => this.pieces(part, isQuoted))];
    if (isOther) return [["", isQuoted]];
    if (value === undefined && !isWhole) return [[mark(name), isQuoted]];
    return elements.flatMap((element, place) => (place ? [[null, true], [element, isQuoted]] : [[element, isQuoted]]));
  }

  // A sum of integers, as bash divides them; a mark where a number is not known.
  sum({ sum }) {
    const tokens = sum.match(/\d+|[A-Za-z_]\w*|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}|[-+*/%()]|\S/g) ?? [];
    let place = 0;
    const atom = () => {
      const token = tokens[place++] ?? "";
      if (token === "(") {
        const inner = terms();
        if (tokens[place++] !== ")") throw new Unwritten(sum);
        return inner;
      }
      if (token === "-" || token === "+") {
        const operand = atom();
        return operand === null || token === "+" ? operand : -operand;
      }
      if (/^\d+$/.test(token)) return exact(Number(token));
      const [, name] = /^\$?\{?([A-Za-z_]\w*)\}?$/.exec(token) ?? [];
      if (name === undefined) throw new Unwritten(sum);
      const value = this.variables.get(name) ?? "";
      const text = (Array.isArray(value) ? value[0] ?? "" : value).trim();
      return /^-?[0-9]{1,15}$/.test(text) ? Number(text) : /^-?[0-9]+$/.test(text) ? exact(Number(text)) : null;
    };
    const chain = (inner, signs) => () => {
      let left = inner();
      while (signs.includes(tokens[place])) left = computed(left, tokens[place++], inner());
      return left;
    };
    const terms = chain(chain(atom, "*/%"), "+-");
    const total = tokens.length ? terms() : 0;
    if (place < tokens.length) throw new Unwritten(sum);
    return total === null ? mark("$(...)") : String(total);
  }

  // The output of `expr`, which computes products first, from the left; a mark where a word is no number.
  summed(items) {
    const [first, ...others] = items.flatMap((item) => this.words(item));
    const integer = (word) => (/^\s*-?[0-9]{1,18}\s*$/.test(word ?? "") ? exact(Number(word)) : null);
    const summands = [["+", integer(first)]];
    for (let place = 0; place < others.length; place += 2) {
      const [sign, operand] = [others[place], integer(others[place + 1])];
      if (["*", "/", "%"].includes(sign)) summands.at(-1)[1] = computed(summands.at(-1)[1], sign, operand);
      else summands.push([sign, operand]);
    }
    const total = summands.slice(1).reduce((left, [sign, right]) => computed(left, sign, right), summands[0][1]);
    return total === null ? mark("$(...)") : String(total);
  }
}

// The output of a command in a word: `expr` computes its words, and nobody knows that of any other.
function outputOf(written) {
  const unknown = { unknown: "$(...)" };
  if (!/^\s*expr\s/.test(written) || /[<>|&;]/.test(written)) return unknown;
  const [command, ...others] = new ShellReader(written).statements();
  return others.length ? unknown : { summed: command.words.slice(1) };
}

// A number that JavaScript has exactly.
function exact(number) {
  if (!(Math.abs(number) < 2 ** 53)) throw new Unwritten("large numbers");
  return number;
}

// A sum, product, quotient or rest of integers, as bash has it; null where one is not known.
function computed(left, sign, right) {
  if (left === null || right === null || !["+", "-", "*", "/", "%"].includes(sign) || ("/%".includes(sign) && !right)) return null;
  return exact({ "+": left + right, "-": left - right, "*": left * right, "/": Math.trunc(left / right) + 0, "%": (left % right) + 0 }[sign]);
}

function assignedTo(old, made, isAdded) {
  if (Array.isArray(made)) return old === undefined || !isAdded ? made : [...[old].flat(), ...made];
  if (Array.isArray(old)) return [(isAdded ? old.slice(0, 1).join("") : "") + made, ...old.slice(1)];
  return isAdded ? (old ?? "") + made : made;
}

function emptyUnlessSet(word) {
  return marked(word).some((name) => name.startsWith("$")) ? null : word.replace(/\ue000[^\ue001]*\ue001/g, "");
}

// The words of a text that another shell receives; without their pair, quotation marks are signs.
function shellSplit(text) {
  const words = [];
  const rest = text.replaceAll("\\\n", " ");
  const pattern = /\s*((?:\\[^]|'[^']*'|"(?:\\[^]|[^"\\])*"|[^\s'"\\])+)|\s*(\S)/gy;
  for (const [, word, wrong] of rest.matchAll(pattern)) {
    if (wrong) return text.split(/\s+/).filter(Boolean);
    words.push(word.replace(/\\([^])|'([^']*)'|"((?:\\[^]|[^"\\])*)"/g, (_, sign, single, double) => sign ?? single ?? double.replace(/\\(["\\])/g, "$1")));
  }
  return words;
}

// Nodes and GPUs of each, which the head of a batch script decides.
function allocationOf(text) {
  const asked = new Map([...text.matchAll(/^#SBATCH\s+(?:--|-)([A-Za-z-]+)(?:[= ]\s*|)(\S+)/gm)].map(([, name, value]) => [name, value]));
  const nodes = (asked.get("nodes") ?? asked.get("N") ?? "").split("-")[0];
  const gpus = ["gpus-per-node", "gres"].map((name) => /[0-9]+$/.exec(asked.get(name) ?? "")?.[0]).find((number) => number !== undefined) ?? "";
  const known = { SLURM_NNODES: nodes, SLURM_JOB_NUM_NODES: nodes, SLURM_GPUS_ON_NODE: gpus, SLURM_GPUS_PER_NODE: gpus };
  return new Map(Object.entries(known).filter(([, value]) => value));
}
