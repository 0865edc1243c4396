// Elements and numbers as people read them.
const SVG = new Set(["svg", "g", "rect", "line", "path", "circle", "text", "title"]);
const byId = (id) => document.getElementById(id);
const GIB_FORMAT = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 2, maximumFractionDigits: 2, roundingMode: "halfEven", useGrouping: false,
});
const ROLE_CLASS = (role) => `role-${role}`;
const VERDICT_CLASS = ["fits", "uncertain", "out"];
const VERDICT_SIGN = ["", "~", ""];

// An element with attributes and children; texts are texts, never HTML. What is undefined is left out.
function element(name, attributes = {}, ...children) {
  const made = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== undefined));
  return made;
}

function gib(bytes) {
  const value = bytes / GIB;
  return value > 0 && value < 0.005 ? "<0.01" : GIB_FORMAT.format(value);
}

function count(number) {
  return number.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

// Words for those who do not see what stands beside them.
function unseen(text) {
  return element("span", { class: "unseen" }, text);
}

function percent(share) {
  return `${(100 * share).toFixed(1)}%`;
}

// A share of a whole, in percent; from ten wholes on as a multiple.
function shareOf(share, whole) {
  return share < 10 ? `${percent(share)} of ${whole}` : `${share.toPrecision(3)} times ${whole}`;
}

// A probability; a little is not shown as nothing, nor nearly all as all.
function chance(probability) {
  if (probability < 0.001) return "<0.1%";
  return 0.999 < probability && probability < 1 ? ">99.9%" : percent(probability);
}

// The price of a million tokens; nothing where no price is given.
function millionCost(perToken) {
  const million = 1e6 * perToken;
  return million >= 1000 ? count(million) : million ? million.toPrecision(3) : "";
}

function seconds(value) {
  return value === 0 ? "0" : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value >= 1 ? value.toFixed(2) : value.toFixed(3);
}

function quantity(number, unit) {
  const shown = number.toLocaleString("en-US", { maximumSignificantDigits: Number.isInteger(number) ? 17 : 6 });
  return unit === "bytes" && number >= 2 ** 20 ? `${shown} bytes = ${gib(number)} GiB` : `${shown} ${unit}`;
}

// A text that may break behind the signs in its names.
function breakable(text) {
  return text.split(/(?<=[._+])/).flatMap((part) => [element("wbr"), part]).slice(1);
}

// A number that shows its formula.
function termButton(term, text, more = {}) {
  const parts = text === undefined ? breakable(term) : [text];
  const label = text === undefined ? undefined : `${text}: formula of ${term}`;
  return element("button", { type: "button", class: "link", "data-term": term, "aria-label": label, ...more }, ...parts);
}

function row(kind, ...cells) {
  return element("tr", {}, ...cells.map((cell) =>
    (kind === "th" && cell !== "" ? element("th", { scope: "col" }, cell) : element("td", {}, cell))));
}

function badge(verdict) {
  const place = shardmath[evaluatorName(state)].VERDICTS.findIndex(([name]) => name === verdict);
  return element("span", { class: `badge ${VERDICT_CLASS[place]}` }, verdict);
}

// The account of the rank that keeps most, the first of several; undefined of none.
function largest(accounts) {
  return accounts.reduce((best, account) => (best && best.total >= account.total ? best : account), undefined);
}

function shortName(name) {
  return DATA.short[name] ?? name;
}
