// The map: the peak over two axes, all else as chosen.
// Sizes of an axis around the chosen one; those that cannot divide the GPUs are left out.
const DIVIDING = ["tensor_parallel", "context_parallel", "pipeline_parallel"];
function axisValues(name) {
  const isFree = !DIVIDING.includes(name) || state.across === "num_gpus" || state.down === "num_gpus";
  const able = CANDIDATES[name](state.numbers).filter((size) => isFree || divides(size, state.numbers.num_gpus));
  const values = ascending(able, state.numbers[name]);
  const here = values.indexOf(state.numbers[name]);
  const start = Math.max(0, Math.min(here - 6, values.length - 12));
  return values.slice(start, start + 12);
}

function mapCell(x, y) {
  const numbers = { ...state.numbers, [state.across]: x, [state.down]: y };
  const there = { ...state, numbers };
  const evaluator = shardmath[evaluatorName(there)];
  const here = x === state.numbers[state.across] && y === state.numbers[state.down];
  const common = { tabindex: here ? 0 : -1, "aria-selected": here, "data-x": x, "data-y": y };
  const place = `${shortName(state.across)} ${x}, ${shortName(state.down)} ${y}`;
  const { broken, peak, verdict } = evaluator ? peakOf(evaluator, valuesOf(there)) : { broken: "another program" };
  const words = broken ?? `${gib(peak)} GiB, ${evaluator.VERDICTS[verdict][0]}`;
  const text = broken ? "·" : VERDICT_SIGN[verdict] + Math.round(peak / GIB);
  return element("td", { class: broken ? "illegal" : VERDICT_CLASS[verdict], title: words, ...common },
    element("span", { "aria-hidden": "true" }, text), unseen(`${place}: ${words}`));
}

function showMap() {
  const [across, down] = [axisValues(state.across), axisValues(state.down)];
  const evaluator = shardmath[evaluatorName(state)];
  const heads = across.map((x) => element("th", { scope: "col" }, String(x)));
  byId("map").replaceChildren(
    element("thead", {}, element("tr", {}, element("td", { class: "corner" }, `${shortName(state.down)} ↓\n${shortName(state.across)} →`), ...heads)),
    element("tbody", {}, ...down.map((y) => element(
      "tr", {}, element("th", { scope: "row" }, String(y)), ...across.map((x) => mapCell(x, y)),
    ))),
  );
  byId("map-legend").replaceChildren(
    ...evaluator.VERDICTS.map(([name, meaning], place) => element(
      "li", {}, element("span", { class: `key ${VERDICT_CLASS[place]}` }, `${VERDICT_SIGN[place]}70`), `${name}: ${meaning.replace("1 % (or --risk)", state.risk)}`,
    )),
    element("li", {}, element("span", { class: "key illegal" }, "·"), "breaks a rule"),
  );
}

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function onMapKey(event) {
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
