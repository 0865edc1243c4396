// The formula of a number, typeset, with the terms in it, its value on the chosen rank and its sources.
let shownNumbers = {};
let shownRank = 0;
let shownTerm = "stage.total";

function math(inside) {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", "math");
  made.innerHTML = inside; // printed from our own expressions
  return made;
}

function meaningOf(term) {
  const evaluator = shardmath[evaluatorName(state)];
  return evaluator.TERMS[term] ?? evaluator.TIMES[term];
}

function parameterValue(name, value) {
  return isSwitch(name) ? ["no", "yes"][value] : quantity(value, DATA.parameters[name].unit);
}

function valueOf(term) {
  const [unit] = meaningOf(term);
  return term in shownNumbers ? quantity(shownNumbers[term], unit) : unit;
}

function sourceItem(key) {
  const { authors, title, year, where, url } = DATA.sources[key];
  return element("li", {}, `${authors}: `, element("a", { href: url, rel: "noreferrer" }, title), `, ${year}. ${where}.`);
}

// Parameters in a formula, in the order of their names: what stands there that is no term.
function parametersIn(pieces, symbols) {
  const found = new Set();
  const letters = new Map(Object.entries(DATA.parameters).filter(([, { letter }]) => letter).map(([name, { letter }]) => [math(letter).innerHTML, name]));
  const terms = new Set(symbols.map((symbol) => math(symbol).innerHTML));
  const walk = (node) => {
    if (terms.has(node.outerHTML)) return;
    if (letters.has(node.outerHTML)) found.add(letters.get(node.outerHTML));
    else [...node.children].forEach(walk);
  };
  for (const piece of pieces) [...math(piece).children].forEach(walk);
  return [...found].sort();
}

// A formula with its sum over several lines if need be, and the terms in it; numbers are those of the chosen rank.
function showFormula() {
  const name = evaluatorName(state);
  const formula = formulaOf(name, shownTerm);
  const [, meaning] = meaningOf(shownTerm);
  byId("formula-title").textContent = shownTerm;
  const value = element("p", { class: "value number" }, `= ${valueOf(shownTerm)}`);
  if (!formula?.form.length) {
    byId("formula").replaceChildren(element("p", {}, meaning), value,
      element("p", { class: "hint" }, `It joins several ranks: shardmath formula ${shownTerm} has its form.`));
    return;
  }
  const { symbol, form, uses, sources } = formula;
  const where = uses.filter((term) => formulaOf(name, term)).map((term) => element(
    "div", {}, element("dt", {}, math(formulaOf(name, term).symbol), " ", termButton(term)),
    element("dd", {}, `${meaningOf(term)[1]}: `, element("span", { class: "number" }, valueOf(term))),
  ));
  const values = { ...valuesOf(state), pipeline_rank: shownRank };
  const given = parametersIn(form, uses.map((term) => formulaOf(name, term)?.symbol ?? "")).map((word) => element(
    "div", {}, element("dt", {}, math(DATA.parameters[word].letter), " ", word),
    element("dd", {}, DATA.parameters[word].meaning, ...(values[word] === undefined ? [] : [": ", element("span", { class: "number" }, parameterValue(word, values[word]))])),
  ));
  byId("formula").replaceChildren(
    element("p", {}, meaning),
    element("p", { class: "equation", tabindex: 0, role: "group", "aria-label": "formula" },
      math(`${symbol}<mo>=</mo>`), ...form.flatMap((piece) => [" ", math(piece)])),
    value,
    ...(where.length || given.length ? [element("h3", {}, "where"), element("dl", {}, ...where, ...given)] : []),
    ...(sources.length ? [element("h3", {}, "Sources"), element("ul", { class: "sources" }, ...sources.map(sourceItem))] : []),
  );
}

async function openFormula(term) {
  if (!meaningOf(term)) return;
  await loadFormulas();
  shownTerm = term;
  showFormula();
  const drawer = byId("drawer");
  if (!drawer.open) drawer.showModal();
  drawer.scrollTop = 0;
  byId("formula-title").focus();
}
