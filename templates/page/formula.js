// The formula of a number, typeset, with the terms in it, its value on the chosen rank and its sources.
let shownNumbers = {};
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

function valueOf(term) {
  const [unit] = meaningOf(term);
  return term in shownNumbers ? quantity(shownNumbers[term], unit) : unit;
}

function sourceItem(key) {
  const { authors, title, year, where, url } = DATA.sources[key];
  return element("li", {}, `${authors}: `, element("a", { href: url, rel: "noreferrer" }, title), `, ${year}. ${where}.`);
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
  byId("formula").replaceChildren(
    element("p", {}, meaning),
    element("p", { class: "equation", tabindex: 0, role: "group", "aria-label": "formula" },
      math(`${symbol}<mo>=</mo>`), ...form.flatMap((piece) => [" ", math(piece)])),
    value,
    ...(where.length ? [element("h3", {}, "where"), element("dl", {}, ...where)] : []),
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
