// Controls and events: whatever is chosen is shown at once, and written into the link.
const TOP = 10;
const CHOICES = { model: "Model", gpu: "GPU", implementation: "Implementation", recompute: "Recompute" };
let running; // the sweep in progress
let latest = { best: [] };

function label(name) {
  const { meaning } = DATA.parameters[name];
  return meaning[0].toUpperCase() + meaning.slice(1);
}

function selectFor(name) {
  return element("label", { class: "control" }, element("span", {}, CHOICES[name]), element("select", { "data-name": name }));
}

function sliderFor(name) {
  const text = label(name);
  return element(
    "div", { class: "control", "data-control": name },
    element("label", { for: `number-${name}` }, text),
    element("input", { type: "number", id: `number-${name}`, "data-name": name, inputmode: "numeric", step: 1 }),
    element("input", { type: "range", "data-slider": name, min: 0, "aria-label": text }),
  );
}

function build() {
  byId("job").append(selectFor("model"), selectFor("gpu"), selectFor("implementation"), ...JOB.map(sliderFor));
  byId("layout").append(
    ...LAYOUT.map(sliderFor),
    element("label", { class: "check" }, element("input", { type: "checkbox", "data-check": "sequence_parallel" }),
      label("sequence_parallel")),
    selectFor("recompute"),
  );
  byId("dimensions").append(...SHAPE.map(sliderFor));
  for (const name of ["across", "down", "term"]) byId(name).dataset.name = name;
}

function fillSelects() {
  for (const select of document.querySelectorAll("select[data-name]")) {
    const { name } = select.dataset;
    const options = optionsOf(name);
    if (options.join() !== [...select.options].map((option) => option.value).join())
      select.replaceChildren(...options.map((value) => {
        const text = name === "across" || name === "down" ? label(value) : value;
        return element("option", { value }, text);
      }));
    select.value = state[name];
  }
}

function fillSliders() {
  const { fixed } = DATA.evaluators[evaluatorName(state)];
  for (const slider of document.querySelectorAll("[data-slider]")) {
    const name = slider.dataset.slider;
    const value = state.numbers[name];
    slider.candidates = [...new Set([...CANDIDATES[name](state.numbers), value])].sort((left, right) => left - right);
    slider.max = slider.candidates.length - 1;
    slider.value = slider.candidates.indexOf(value);
    slider.setAttribute("aria-valuetext", `${value} ${DATA.parameters[name].unit}`);
    const number = byId(`number-${name}`);
    number.value = value;
    slider.disabled = number.disabled = name in fixed;
    slider.closest("[data-control]").hidden = name === "expert_parallel" && name in fixed;
  }
  const check = document.querySelector("[data-check]");
  check.checked = Boolean(state.numbers.sequence_parallel);
  check.disabled = "sequence_parallel" in fixed;
}

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

// Everything follows from the state.
function show() {
  fillSelects();
  fillSliders();
  const values = valuesOf(state);
  const { broken } = peakOf(shardmath[evaluatorName(state)], values);
  const accounts = broken ? [] : accountsOf(state, values);
  const chosen = accounts[state.rank] ?? largest(accounts);
  showHeadline(values, accounts, broken);
  for (const id of ["stages", "account"]) byId(id).hidden = Boolean(broken);
  if (chosen) showChart(values, accounts, chosen);
  if (chosen) showAccount(chosen);
  showFormula(chosen?.numbers);
  showMap();
  history.replaceState(null, "", toLink());
  sweep();
}

// The sweep goes on between other events; a new choice ends it.
function sweep() {
  clearTimeout(running);
  byId("best").setAttribute("aria-busy", true);
  const steps = sweepOf(state, TOP);
  const go = () => {
    const until = performance.now() + 25;
    do latest = steps.next().value;
    while (!latest.done && performance.now() < until);
    showBest(latest);
    if (!latest.done) running = setTimeout(go);
  };
  running = setTimeout(go, 100);
}

function takeOver(layout, recompute) {
  for (const name of [...LAYOUT, "sequence_parallel"]) state.numbers[name] = layout[name];
  state.recompute = recompute;
  state.rank = -1;
  show();
}

function onInput({ target }) {
  const { name, slider, check } = target.dataset;
  notice("");
  if (slider) choose(slider, target.candidates[target.value]);
  else if (check) choose(check, Number(target.checked));
  else if (target.type === "number") {
    const value = Number(target.value);
    const [least, most] = DATA.parameters[name].limits;
    if (!legal(name, value)) return notice(`${name} must be an integer from ${least} to ${most}.`);
    choose(name, value);
  } else if (name) choose(name, target.value);
  else return undefined;
  return show();
}

function onClick({ target }) {
  const button = target.closest("button, td[data-x]");
  if (!button) return;
  const { rank, term, best, x, y } = button.dataset;
  if (rank !== undefined) choose("rank", Number(rank));
  else if (term) choose("term", term);
  else if (best) return takeOver(latest.best[best].values, latest.best[best].recompute);
  else if (x) {
    choose(state.across, Number(x));
    choose(state.down, Number(y));
  } else return;
  show();
  if (term) byId("formula-title").focus();
  if (rank !== undefined) document.querySelector(`[data-rank="${rank}"]`).focus();
  if (x) document.querySelector("#map [aria-selected=true]").focus();
}

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function onKey(event) {
  const cell = event.target.closest("#map td");
  if (!cell) return;
  if (event.key === "Enter" || event.key === " ") cell.click();
  else if (event.key in MOVES) {
    const [down, across] = MOVES[event.key];
    const rows = [...byId("map").tBodies[0].rows];
    const next = rows[rows.indexOf(cell.parentElement) + down]?.cells[cell.cellIndex + across];
    if (next?.dataset.x) [cell.tabIndex, next.tabIndex] = [-1, 0];
    if (next?.dataset.x) next.focus();
  } else return;
  event.preventDefault();
}

function open() {
  const ignored = fromLink(location.hash);
  notice(ignored.length ? `Ignored in the link: ${ignored.join(", ")}` : "");
  show();
}

build();
document.addEventListener("input", onInput);
document.addEventListener("click", onClick);
byId("map").addEventListener("keydown", onKey);
addEventListener("hashchange", open);
open();
