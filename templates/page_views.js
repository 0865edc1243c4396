// What is shown: elements, the chart, the map, the tables and the formula.
const ROLE_CLASS = (role) => `role-${role}`;
const VERDICT_CLASS = ["fits", "uncertain", "out"];
const VERDICT_SIGN = ["", "~", ""];
const byId = (id) => document.getElementById(id);
const GIB_FORMAT = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 2, maximumFractionDigits: 2, roundingMode: "halfEven", useGrouping: false,
});

function gib(bytes) {
  const value = bytes / GIB;
  return value > 0 && value < 0.005 ? "<0.01" : GIB_FORMAT.format(value);
}

// An element with attributes and children; texts are texts, never HTML.
function element(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The account of the rank that keeps most, the first of several; undefined of none.
function largest(accounts) {
  return accounts.reduce((best, account) => (best && best.total >= account.total ? best : account), undefined);
}

function verdictBadge(verdict) {
  const place = shardmath[evaluatorName(state)].VERDICTS.findIndex(([name]) => name === verdict);
  return element("span", { class: `badge ${VERDICT_CLASS[place]}` }, verdict);
}

function showHeadline(values, accounts, broken) {
  if (broken) {
    byId("headline").replaceChildren(
      element("p", { class: "figure" }, element("span", { class: "badge out" }, "not a layout")),
      element("p", {}, `${broken}.`),
    );
    return;
  }
  const peak = largest(accounts);
  const share = GIB_FORMAT.format((100 * peak.total) / values.gpu_memory).slice(0, -1);
  const { sites, momentsCounted } = DATA.evaluators[evaluatorName(state)];
  const when = sites[peak.site] ? `, when ${sites[peak.site].meaning}` : "";
  const process = ["allocated", "reserved", "total"].map((name) => gib(peak.numbers[`process.${name}`]));
  byId("headline").replaceChildren(
    element("p", { class: "figure" }, element("strong", {}, `${gib(peak.total)} GiB`), " ", verdictBadge(peak.verdict)),
    element("p", {}, `${share}% of ${gib(values.gpu_memory)} GiB, on rank ${peak.rank}${when}. `
      + `DP ${values.data_parallel}. Allocated ${process[0]}, reserved ${process[1]}, process ${process[2]} GiB.`),
    ...(momentsCounted ? [] : [element("p", { class: "hint" }, "Counted are saved tensors and the loss.")]),
  );
}

// One bar for a rank: roles from left to right, the memory of the GPU and 80 % of it as lines.
function bar(account, scale, memory) {
  const drawn = element("svg", { "aria-hidden": "true" });
  let start = 0;
  for (const role of DATA.roles) {
    const size = account.byRole[role];
    if (!size) continue;
    const title = element("title", {}, `${role} ${gib(size)} GiB`);
    const [x, width] = [start, size].map((bytes) => `${(100 * bytes) / scale}%`);
    drawn.append(element("rect", { class: ROLE_CLASS(role), x, width, height: "100%" }, title));
    start += size;
  }
  for (const [share, kind] of [[0.8, "limit soft"], [1, "limit"]]) {
    const x = `${(100 * share * memory) / scale}%`;
    drawn.append(element("line", { class: kind, x1: x, x2: x, y1: 0, y2: "100%" }));
  }
  return drawn;
}

// All ranks, or the ends of many, always with the one that keeps most and the chosen one.
function shownRanks(accounts) {
  const kept = [largest(accounts).rank, state.rank];
  return accounts.filter(({ rank }) => accounts.length <= 16 || rank < 6 || rank >= accounts.length - 6
    || kept.includes(rank));
}

function showChart(values, accounts, chosen) {
  const scale = 1.01 * Math.max(values.gpu_memory, ...accounts.map((account) => account.total));
  byId("chart").replaceChildren(...shownRanks(accounts).map((account) => element(
    "button",
    {
      type: "button", "data-rank": account.rank, "aria-pressed": account.rank === chosen.rank,
      "aria-label": `rank ${account.rank}: ${gib(account.total)} GiB, ${account.verdict}`,
    },
    element("span", {}, `rank ${account.rank}`), bar(account, scale, values.gpu_memory),
    element("span", { class: "number" }, gib(account.total)),
  )));
  byId("legend").replaceChildren(
    ...DATA.roles.filter((role) => accounts.some((account) => account.byRole[role])).map((role) => element(
      "li", {}, element("span", { class: `swatch ${ROLE_CLASS(role)}` }), `${role} `,
      element("span", { class: "number" }, chosen ? gib(chosen.byRole[role]) : ""),
    )),
    element("li", {}, element("span", { class: "swatch line" }), "80 % and 100 % of the GPU"),
  );
}

function row(kind, ...cells) {
  return element("tr", {}, ...cells.map((cell) => element(kind, kind === "th" ? { scope: "col" } : {}, cell)));
}

// The name of a term, which may break after dots and underscores.
function termButton(term) {
  const parts = term.split(/(?<=[._])/).flatMap((part) => [element("wbr"), part]);
  return element("button", { type: "button", class: "link", "data-term": term }, ...parts.slice(1));
}

// The lines of every role under its sum, as `shardmath explain` has them.
function showAccount(account) {
  const groups = DATA.roles.map((role) => element(
    "tbody", {},
    element("tr", {}, element("th", { scope: "rowgroup" }, element("span", { class: `swatch ${ROLE_CLASS(role)}` }), role),
      element("th", {}, gib(account.byRole[role])),
      element("td", {}, role === "transient" ? "at the peak" : termButton(`stage.${role}`))),
    ...account.lines.filter((line) => line.role === role)
      .map(({ term, component, bytes }) => row("td", component, gib(bytes), termButton(term))),
  ));
  byId("lines").replaceChildren(
    element("caption", {}, `GiB on rank ${account.rank}, which peaks at ${account.site}`),
    element("thead", {}, row("th", "component", "GiB", "term")), ...groups,
    element("tbody", {}, row("th", "total", gib(account.total), termButton("stage.total"))),
  );
}

function math(inside) {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", "math");
  made.innerHTML = inside; // printed from our own expressions
  return made;
}

function quantity(number, unit) {
  if (unit === "bytes" && number >= 2 ** 20) return `${number.toLocaleString("en-US")} bytes = ${gib(number)} GiB`;
  return `${number.toLocaleString("en-US")} ${unit}`;
}

// A formula with its sum over several lines if need be, and the terms in it; numbers are those of the chosen rank.
function showFormula(numbers) {
  const name = evaluatorName(state);
  const formulas = DATA.formulas[name];
  const { TERMS } = shardmath[name];
  const { symbol, form, uses } = formulas[state.term];
  const value = (term) => (numbers ? quantity(numbers[term], TERMS[term][0]) : TERMS[term][0]);
  const where = uses.map((term) => element(
    "div", {}, element("dt", {}, math(formulas[term].symbol), " ", termButton(term)),
    element("dd", {}, `${TERMS[term][1]}: `, element("span", { class: "number" }, value(term))),
  ));
  byId("formula").replaceChildren(
    element("p", {}, TERMS[state.term][1]),
    element("p", { class: "equation", tabindex: 0, role: "group", "aria-label": "formula" },
      math(`${symbol}<mo>=</mo>`), ...form.flatMap((piece) => [" ", math(piece)])),
    element("p", { class: "number" }, `= ${value(state.term)}`),
    ...(where.length ? [element("h3", {}, "where"), element("dl", {}, ...where)] : []),
  );
}

function axisValues(name) {
  const values = [...new Set([...CANDIDATES[name](state.numbers), state.numbers[name]])].sort((a, b) => a - b);
  const here = values.indexOf(state.numbers[name]);
  const start = Math.max(0, Math.min(here - 6, values.length - 12));
  return values.slice(start, start + 12);
}

function showMap() {
  const [across, down] = [axisValues(state.across), axisValues(state.down)];
  const evaluator = shardmath[evaluatorName(state)];
  const short = (name) => DATA.parameters[name].meaning.match(/\(([A-Z]+)\)/)?.[1] ?? name;
  const cell = (x, y) => {
    const numbers = { ...state.numbers, [state.across]: x, [state.down]: y };
    const there = { ...state, numbers };
    const { broken, peak, verdict } = peakOf(shardmath[evaluatorName(there)], valuesOf(there));
    const here = x === state.numbers[state.across] && y === state.numbers[state.down];
    const words = broken ?? `${gib(peak)} GiB, ${evaluator.VERDICTS[verdict][0]}`;
    const text = broken ? "·" : VERDICT_SIGN[verdict] + Math.round(peak / GIB);
    return element("td", {
      class: broken ? "illegal" : VERDICT_CLASS[verdict], tabindex: here ? 0 : -1, "aria-selected": here, "data-x": x,
      "data-y": y, title: words, "aria-label": `${short(state.across)} ${x}, ${short(state.down)} ${y}: ${words}`,
    }, text);
  };
  const heads = across.map((x) => element("th", { scope: "col" }, String(x)));
  byId("map").replaceChildren(
    element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, ...down.map((y) => element(
      "tr", {}, element("th", { scope: "row" }, String(y)), ...across.map((x) => cell(x, y)),
    ))),
  );
  byId("map-legend").replaceChildren(
    ...evaluator.VERDICTS.map(([name, meaning], place) => element(
      "li", {}, element("span", { class: `key ${VERDICT_CLASS[place]}` }, `${VERDICT_SIGN[place]}70`), `${name}: ${meaning}`,
    )),
    element("li", {}, element("span", { class: "key illegal" }, "·"), "breaks a rule"),
  );
}

function showBest(found) {
  const { legal: count, fits, done, best } = found;
  const [legalCount, fitCount] = [count, fits].map((number) => number.toLocaleString("en-US"));
  byId("best-count").textContent = `${done ? "" : "Still trying: "}${legalCount} legal layouts, ${fitCount} fit. `
    + "Least tensor * context * pipeline ranks first, then the largest margin.";
  byId("best").setAttribute("aria-busy", !done);
  const experts = best.some((entry) => entry.values.expert_parallel > 1);
  const titles = ["GiB", "TP", "CP", "PP", ...(experts ? ["EP"] : []), "DP", "mbs", "SP", "recompute"];
  const lines = best.map(({ values: v, recompute, peak }, place) => row(
    "td", element("button", { type: "button", "data-best": place, title: "Take over this layout" }, gib(peak)), v.tensor_parallel, v.context_parallel, v.pipeline_parallel, ...(experts ? [v.expert_parallel] : []),
    v.data_parallel, v.micro_batch_size, v.sequence_parallel ? "on" : "off", recompute,
  ));
  byId("best").replaceChildren(
    ...(best.length ? [element("thead", {}, row("th", ...titles)), element("tbody", {}, ...lines)] : []),
  );
}
