// Everything follows from the state: what is chosen is shown at once, and written into the link.
async function ready(chosen = state) {
  const near = partsOf(chosen).filter((part) => part.schedule === partOf(chosen).schedule || hasPipeline(part).alone);
  await Promise.all([...new Set([evaluatorName(chosen), ...near.map((part) => part.evaluator)])].map(load));
}

function show() {
  fillSelects();
  fillSliders();
  const { values, broken, accounts, time } = examined(state);
  const chosen = accounts[state.rank] ?? largest(accounts);
  shownNumbers = chosen ? { ...chosen.numbers, ...time.ranks?.[chosen.rank] } : {};
  showHeadline(values, accounts, time, broken);
  showTime(time);
  for (const id of ["stages", "account"]) byId(id).hidden = Boolean(broken);
  if (chosen) showChart(values, accounts, chosen);
  if (chosen) showAccount(chosen);
  showMap();
  history.replaceState(null, "", toLink());
  search();
  document.documentElement.dataset.ready = "";
}

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
  const { rank, term, list, best, x, y } = button.dataset;
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

function open() {
  const ignored = fromLink(location.hash);
  notice(ignored.length ? `Ignored in the link: ${ignored.join(", ")}` : "");
  return update();
}

async function start() {
  use(await unpacked());
  fromLink(location.hash);
  build();
  document.addEventListener("input", onInput);
  document.addEventListener("click", onClick);
  byId("map").addEventListener("keydown", onMapKey);
  byId("stop").addEventListener("click", stopSearch);
  byId("again").addEventListener("click", () => search(true));
  byId("close").addEventListener("click", () => byId("drawer").close());
  byId("drawer").addEventListener("click", (event) => event.target === byId("drawer") && byId("drawer").close());
  addEventListener("hashchange", open);
  await open();
}

start();
