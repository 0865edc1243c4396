// The layouts worth trying, from a worker that is asked anew when the job changes.
let worker, searchedFor, waiting;
// Milliseconds without another job before one is searched: a slider that moves asks for many.
const CALM = 120;
const NOTHING = { choices: [], fastest: [], nearest: [] };
let ranked = NOTHING;

function jobOf({ model, gpu, network, risk, implementation, kernels, numbers, settings }) {
  return JSON.stringify([model, gpu, network, risk, implementation, kernelKey(kernels), settings, JOB.map((name) => numbers[name]), Object.keys(MODELS.get(model).values)
    .map((name) => numbers[name])]);
}

// Search if the job is another one; a search that still runs is given up.
function search(again = false) {
  const job = jobOf(state);
  if (job === searchedFor && !again) return showRanking();
  giveWorkerUp();
  searchedFor = job;
  ranked = NOTHING;
  setStale(true);
  const values = valuesOf(state);
  const unknown = timeUnknown(state, values);
  if (unknown) return giveUp(`Layouts are ranked by step time, which is not computed: ${untimedBecause(unknown)}.`);
  showSearch({ share: 0, legal: 0, verdicts: [0, 0, 0] });
  waiting = setTimeout(searchBeside, CALM);
  return undefined;
}

function searchBeside() {
  if (jobOf(state) !== searchedFor) { // another job is being made ready, and is searched once it is shown
    searchedFor = undefined;
    return;
  }
  worker = workerFor(state);
  worker.onmessage = ({ data }) => {
    if (!shardmath[evaluatorName(state)]) return; // another model is being loaded, and a search of its own follows
    showSearch(data);
    if (data.choices) answer(data);
    if (data.done) place();
  };
  worker.onerror = (event) => giveUp(`The search failed: ${event.message}.`);
}

function giveWorkerUp() {
  clearTimeout(waiting);
  worker?.terminate();
}

function stopSearch() {
  giveWorkerUp();
  giveUp(ranked.choices.length ? "Stopped: these are the best so far." : "Stopped.");
}

function giveUp(why) {
  showSearch({ stopped: why });
  answer(ranked);
  place();
}

function answer(layouts) {
  ranked = layouts;
  setStale(false);
  showRanking();
  if (!isSearching()) keepRoom();
}

function isSearching() {
  return byId("best").getAttribute("aria-busy") === "true";
}

// The next search begins with the room of these rows, so that nothing below them jumps.
function keepRoom() {
  const ranking = byId("ranking");
  ranking.style.setProperty("--kept", `${ranking.getBoundingClientRect().height}px`);
}

// Rows of the job before stay in place, out of reach, until the first of the new one come: so nothing jumps.
function setStale(stale) {
  byId("ranking").classList.toggle("stale", stale);
  byId("ranking").inert = stale;
}

// Seconds that a search takes yet, in words.
function timeLeft(time) {
  if (time === undefined) return "";
  return `about ${time < 90 ? `${5 * Math.ceil(time / 5)} s` : `${Math.round(time / 60)} min`} left`;
}

function showSearch({ share = 1, left, done = false, legal = 0, verdicts = [0, 0, 0], refused = 0, slow = 0, stopped = "" }) {
  byId("best").setAttribute("aria-busy", !done && !stopped);
  byId("ranking").classList.toggle("searching", !done && !stopped);
  byId("progress").value = share;
  byId("left").textContent = timeLeft(left);
  for (const id of ["progress", "left", "stop"]) byId(id).hidden = Boolean(done || stopped);
  byId("again").hidden = !stopped || Boolean(timeUnknown(state, valuesOf(state)));
  byId("best-count").classList.toggle("stopped", Boolean(stopped));
  const beyond = done && refused ? ` ${count(refused)} have sizes too great for exact numbers here, and are left out.` : "";
  const counted = !slow ? `, ${count(verdicts[0])} fit` : done ? `, ${count(slow)} of them slower than all of these` : "";
  byId("best-count").textContent = stopped || (done && !legal ? "No layout of this job is legal. shardmath recommend says why."
    : !done && !legal ? "Searching …" : `${done ? "" : "Searching: "}${count(legal)} legal layouts${counted}.${beyond}`);
}

function isChosen({ values, labels }) {
  const same = (name) => !(name in state.numbers) || (state.numbers[name] || (valuesOf(state)[name] ?? 0)) === values[name];
  return [...LAYOUT, ...STAGES, ...SWITCHES].every((name) => !(name in values) || isFixed(name) || same(name))
    && labels.recompute === state.recompute;
}

const SIZES = ["tensor_parallel", "context_parallel", "pipeline_parallel", "virtual_pipeline", "expert_parallel",
  "expert_tensor_parallel", "micro_batch_size"];

// Words for how stages differ, and for the order of passes where a program has several.
function wordsOf({ values, labels, part }) {
  const words = [labels.recompute === "none" ? "" : `recompute ${labels.recompute}`];
  if (schedulesOf(state).length > 1 && values.pipeline_parallel > 1) words.push(part.schedule);
  if (values.last_stage_layers) words.push(`last stage ${values.last_stage_layers}`);
  if (values.account_for_embedding) words.push("embedding as a layer");
  if (values.account_for_loss) words.push("loss as a layer");
  return words.filter(Boolean).join(", ");
}

// Columns of the ranking besides the name of a row and its layout: what a number is called, and where it comes from.
const MEASURES = [
  ["step", "s", ({ seconds: time }) => seconds(time), "strong"],
  ["tokens/s", "per GPU", ({ rates }) => count(rates.tokensPerSecondPerGpu)],
  ["MFU", "", ({ rates }) => percent(rates.mfu)],
  ["cost", "per M tokens", ({ rates }) => millionCost(rates.costPerToken)],
  ["peak", "GiB", ({ peak, verdict }) => element("span", {}, element("span", { class: `badge ${VERDICT_CLASS[verdict]}` },
    VERDICT_SIGN[verdict] + gib(peak)), unseen(verdictName(verdict)))],
  ["runs out", "", ({ probability }) => chance(probability)],
  ["80 %", "rule", ({ rule }) => verdictName(rule), "rule"],
];

// Those of them that are known: cost needs a price.
function measures() {
  return MEASURES.filter(([name]) => name !== "cost" || state.numbers[CENTS]);
}

function verdictName(place) {
  return shardmath[evaluatorName(state)].VERDICTS[place][0];
}

// On a narrow screen every row is a card, so the roles of a table are said.
function entryRow(entry, place, list) {
  const chosen = isChosen(entry);
  return element("tr", { role: "row", class: chosen ? "chosen" : undefined },
    element("th", { scope: "row", role: "rowheader" }, element("button", { type: "button", "data-list": list, "data-best": place,
      "aria-pressed": chosen }, unseen("Take over "), entry.role ?? `${place + 1}`)),
    ...measures().map(([name, unit, shown, style]) => element("td", { role: "cell", class: style,
      "data-label": unit.length > 3 ? `${name} ${unit}` : name, "data-unit": unit.length > 3 ? undefined : unit }, shown(entry))),
    element("td", { class: "layout", role: "cell" }, ...breakable(inWords(entry))));
}

const ROWS = [["choices", "Worth trying"], ["fastest", "The fastest that fit"], ["nearest", "None fits: those of least memory"]];

function showRanking() {
  if (byId("ranking").inert) return;
  const every = [...ranked.choices, ...ranked.fastest, ...ranked.nearest];
  const headed = (...children) => element("th", { scope: "col", role: "columnheader" }, ...children);
  const head = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, element("td", { role: "cell" }),
    ...measures().map(([name, unit]) => headed(name, ...(unit ? [unit.length > 3 ? element("br") : ", ", unit] : []))), headed("layout")));
  const body = (list, title, entries) => element("tbody", { "data-rows": list, role: "rowgroup" },
    element("tr", { class: "group", role: "row" }, element("th", { scope: "rowgroup", role: "rowheader", colspan: measures().length + 2 }, title)),
    ...entries.map((entry, place) => entryRow(entry, place, list)));
  byId("best").replaceChildren(...(every.length
    ? [head, ...ROWS.filter(([list]) => ranked[list].length).map(([list, title]) => body(list, title, ranked[list]))] : []));
  byId("best").classList.toggle("priced", measures().length === MEASURES.length);
  const { excluded, byRule80: other } = ranked;
  byId("by-rule-80").textContent = isSearching() || !other ? "" : `By the published 80 % rule: ${inWords(other)}: `
    + `${seconds(other.seconds)} s a step, ${percent(1 - other.seconds / ranked.choices[0].seconds)} less, `
    + `${gib(other.peak)} GiB at the peak, runs out with a probability of ${chance(other.probability)}.`;
  const nothingFits = ranked.nearest.length > 0;
  // Of a layout that stands above already nothing more is to be said.
  const isSaid = excluded && [...ranked.choices, ...(other ? [other] : [])].some((item) => inWords(item) === inWords(excluded));
  byId("excluded").textContent = isSearching() || !excluded ? "" : nothingFits
    ? `Nothing fits. The legal layout of least memory is ${inWords(excluded)}: it needs ${gib(excluded.peak)} GiB. `
      + "shardmath recommend names changes that make something fit."
    : isSaid ? "" : `The next better one runs out with a probability of ${chance(excluded.probability)}: ${inWords(excluded)} would take `
      + `${seconds(excluded.seconds)} s, and needs ${gib(excluded.peak)} GiB.`;
}

// A layout as people write it: sizes above one, TP, PP and micro-batch always.
function inWords(entry) {
  const { values } = entry;
  const always = ["tensor_parallel", "pipeline_parallel", "micro_batch_size"];
  const sizes = [...SIZES, "data_parallel"].filter((name) => values[name] > 1 || always.includes(name))
    .map((name) => `${shortName(name)}\u00a0${values[name]}`);
  return [...sizes, values.sequence_parallel && values.tensor_parallel > 1 ? "SP" : "", wordsOf(entry)].filter(Boolean).join(", ");
}
