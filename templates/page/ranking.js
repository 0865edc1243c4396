// The layouts worth trying, from a worker that is asked anew when the job changes.
let worker, searchedFor;
const NOTHING = { choices: [], fastest: [], nearest: [] };
let ranked = NOTHING;

function jobOf({ model, gpu, network, risk, implementation, numbers }) {
  return JSON.stringify([model, gpu, network, risk, implementation, JOB.map((name) => numbers[name]), Object.keys(MODELS.get(model).values)
    .map((name) => numbers[name])]);
}

// Search if the job is another one; a search that still runs is given up.
function search(again = false) {
  const job = jobOf(state);
  if (job === searchedFor && !again) return showRanking();
  worker?.terminate();
  searchedFor = job;
  ranked = NOTHING;
  setStale(true);
  const values = valuesOf(state);
  const unknown = timeUnknown(state, values);
  if (unknown) return giveUp(`Layouts are ranked by step time, which is not computed: ${unknown}.`);
  showSearch({ share: 0, legal: 0, verdicts: [0, 0, 0] });
  worker = workerFor(state);
  worker.onmessage = ({ data }) => {
    if (!shardmath[evaluatorName(state)]) return; // another model is being loaded, and a search of its own follows
    showSearch(data);
    if (data.choices) answer(data);
  };
  worker.onerror = (event) => giveUp(`The search failed: ${event.message}.`);
  return undefined;
}

function stopSearch() {
  worker?.terminate();
  giveUp(ranked.choices.length ? "Stopped: these are the best so far." : "Stopped.");
}

function giveUp(why) {
  showSearch({ stopped: why });
  answer(ranked);
}

function answer(layouts) {
  ranked = layouts;
  setStale(false);
  showRanking();
}

// Rows of the job before stay in place, out of reach, until the first of the new one come: so nothing jumps.
function setStale(stale) {
  byId("ranking").classList.toggle("stale", stale);
  byId("ranking").inert = stale;
}

function showSearch({ share = 1, done = false, legal = 0, verdicts = [0, 0, 0], refused = 0, stopped = "" }) {
  byId("best").setAttribute("aria-busy", !done && !stopped);
  byId("ranking").classList.toggle("searching", !done && !stopped);
  byId("progress").value = share;
  for (const id of ["progress", "stop"]) byId(id).hidden = Boolean(done || stopped);
  byId("again").hidden = !stopped;
  const beyond = done && refused ? ` ${count(refused)} have numbers beyond 2^53 and are left out.` : "";
  byId("best-count").textContent = stopped
    || `${done ? "" : "Searching: "}${count(legal)} legal layouts, ${count(verdicts[0])} fit.${beyond}`;
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

function entryRow(entry, place, list, shown) {
  const { values, peak, verdict, rates } = entry;
  const chosen = isChosen(entry);
  return element("tr", chosen ? { class: "chosen" } : {},
    element("th", { scope: "row" }, element("button", { type: "button", "data-list": list, "data-best": place,
      "aria-pressed": chosen }, unseen("Take over "), entry.role ?? `${place + 1}`)),
    element("td", { class: "strong" }, seconds(entry.seconds)),
    element("td", {}, element("span", { class: `badge ${VERDICT_CLASS[verdict]}` }, VERDICT_SIGN[verdict] + gib(peak)),
      unseen(shardmath[evaluatorName(state)].VERDICTS[verdict][0])),
    element("td", {}, chance(entry.probability)),
    element("td", {}, shardmath[evaluatorName(state)].VERDICTS[entry.rule][0]),
    ...shown.map((name) => element("td", {}, String(values[name]))),
    element("td", {}, values.sequence_parallel ? "on" : "off"), element("td", {}, String(values.data_parallel)),
    element("td", {}, count(rates.tokensPerSecondPerGpu)), element("td", {}, percent(rates.mfu)),
    element("td", { class: "words" }, wordsOf(entry)));
}

const ROWS = [["choices", "Worth trying"], ["fastest", "The fastest that fit"], ["nearest", "None fits: those of least memory"]];

function showRanking() {
  if (byId("ranking").inert) return;
  const every = [...ranked.choices, ...ranked.fastest, ...ranked.nearest];
  const shown = SIZES.filter((name) => every.some(({ values }) => values[name] > 1));
  const head = element("thead", {}, row("th", "", "seconds", "GiB", "runs out", "80 % rule", ...shown.map(shortName), "SP", "DP", "tokens/s/GPU", "MFU",
    "besides"));
  const body = (list, title, entries) => element("tbody", { "data-rows": list },
    element("tr", { class: "group" }, element("th", { scope: "rowgroup", colspan: shown.length + 10 }, title)),
    ...entries.map((entry, place) => entryRow(entry, place, list, shown)));
  byId("best").replaceChildren(...(every.length
    ? [head, ...ROWS.filter(([list]) => ranked[list].length).map(([list, title]) => body(list, title, ranked[list]))] : []));
  byId("ranking").classList.toggle("ranked", every.length > 5);
  const { excluded } = ranked;
  const searching = byId("best").getAttribute("aria-busy") === "true";
  byId("excluded").textContent = searching || !excluded ? "" : ranked.choices.length
    ? `The next better one runs out with a probability of ${chance(excluded.probability)}: ${inWords(excluded)} would take `
      + `${seconds(excluded.seconds)} s, and needs ${gib(excluded.peak)} GiB.`
    : `Nothing fits. The legal layout of least memory is ${inWords(excluded)}: it needs ${gib(excluded.peak)} GiB.`;
}

function inWords(entry) {
  const sizes = SIZES.filter((name) => entry.values[name] > 1).map((name) => `${shortName(name)} ${entry.values[name]}`);
  return [...sizes, wordsOf(entry)].filter(Boolean).join(", ");
}
