// Everything follows from the state: what is chosen is shown at once, and written into the link.
async function ready(chosen = state) {
  const near = partsOf(chosen).filter((part) => part.schedule === partOf(chosen).schedule || hasPipeline(part).alone);
  const others = kept ? [evaluatorName(kept)] : [];
  await withScripts(partsOf(chosen).map((part) => part.evaluator)); // the search has them all
  await Promise.all([...new Set([evaluatorName(chosen), ...others, ...near.map((part) => part.evaluator)])].map(load));
}

function show() {
  fillSelects();
  fillSliders();
  const { values, broken, refusal, accounts, time } = examined(state);
  const chosen = accounts[state.rank] ?? largest(accounts);
  shownRank = chosen?.rank ?? 0;
  shownNumbers = chosen ? { ...chosen.numbers, ...time.ranks?.[chosen.rank] } : {};
  showHeadline(values, accounts, time, broken, refusal);
  showTime(time);
  for (const id of ["stages", "account", "memory-time", "pipeline"]) byId(id).hidden = Boolean(broken);
  if (chosen) {
    showChart(values, accounts, chosen);
    showAccount(chosen);
    showTimeline(values, chosen);
    showPipeline(values, accounts, time);
  }
  showComparison();
  showMap();
  writeLinkSoon();
  search();
  document.documentElement.dataset.shown = document.documentElement.dataset.ready = "";
}

// Light or dark: as the system says, until somebody switches.
function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  byId("theme").setAttribute("aria-pressed", isDark());
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  showTheme();
}

let readyAfter; // milliseconds since the file was opened
let updates = 0;

// Show the state, after the evaluators that it needs are there; of several states only the last one.
async function update() {
  const own = ++updates;
  delete document.documentElement.dataset.ready;
  await ready();
  if (own === updates) show();
}

async function onClick({ target }) {
  const button = target.closest("button, td[data-x]");
  if (!button) return;
  const { rank, term, list, best, x, y, close, take, file } = button.dataset;
  if (close) return byId(close).close();
  if (take) return EXPORTS[take][1]();
  if (file) return saveFile(file);
  if (term) return openFormula(term);
  if (rank !== undefined) pick("rank", Number(rank));
  else if (best) takeOver(ranked[list][best]);
  else if (x) {
    pick(state.across, Number(x));
    pick(state.down, Number(y));
  } else return;
  await update();
  if (rank !== undefined) document.querySelector(`[data-rank="${rank}"]`).focus();
  if (x) document.querySelector("#map [aria-selected=true]").focus();
  if (best) document.querySelector(`[data-list="${list}"][data-best="${best}"]`)?.focus();
}

async function open() {
  const refusals = await fromAnyLink(location.hash);
  notice(refusals.length ? "Ignored in the link:" : "", noted(...refusals.map((text) => ["", [text]])));
  return update();
}

async function start() {
  await openData();
  fromLink(location.hash);
  build();
  showTheme();
  document.addEventListener("input", onInput);
  document.addEventListener("click", onClick);
  byId("map").addEventListener("keydown", onMapKey);
  byId("stop").addEventListener("click", stopSearch);
  byId("again").addEventListener("click", () => search(true));
  for (const [id, act] of Object.entries({ import: () => byId("importer").showModal(), take: takePasted, keep: keepLayout,
    drop: dropLayout, copy: copyLink, theme: switchTheme })) byId(id).addEventListener("click", act);
  for (const dialog of document.querySelectorAll("dialog"))
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  byId("exports").addEventListener("toggle", showExports);
  byId("exports").addEventListener("keydown", (event) => { if (event.key === "Escape") byId("exports").open = false; });
  addEventListener("hashchange", open);
  await open();
  readyAfter = performance.now();
}

start();
