// Memory over one step of the chosen rank, pass by pass, and the peak at every moment of it.
const HEIGHT = 240;

// The end of a scale with four equal parts of round numbers, in GiB, at or above a number of bytes.
function roundScale(bytes) {
  const part = bytes / GIB / 4;
  const unit = 10 ** Math.floor(Math.log10(part));
  return 4 * GIB * unit * [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((many) => many * unit >= part);
}

// Layers from below: lasting bytes by role, saved tensors by component, tensors of one moment.
function seriesOf(points) {
  const named = new Set(points.flatMap(({ at }) => Object.keys(at)).filter((name) => points.some(({ at }) => at[name])));
  const components = [...named].filter((name) => !LASTING.includes(name) && name !== "transient");
  return [...LASTING.filter((name) => named.has(name)).map((name) => [name, ROLE_CLASS(name)]),
    ...components.map((name, place) => [name, `shade-${place % 6}`]),
    ...(named.has("transient") ? [["transient", ROLE_CLASS("transient")]] : [])];
}

// One area for each series: the moment of every pass at which most is in use.
function areas(points, series, scale) {
  const lower = points.map(() => 0);
  return series.map(([name, kind]) => {
    const upper = points.map(({ at }, place) => lower[place] + (at[name] ?? 0));
    const y = (bytes) => (HEIGHT * (1 - bytes / scale)).toFixed(2);
    const above = upper.map((bytes, place) => `L${place},${y(bytes)}H${place + 1}`).join("");
    const below = lower.map((bytes, place) => `L${place + 1},${y(bytes)}H${place}`).reverse().join("");
    upper.forEach((bytes, place) => { lower[place] = bytes; });
    return element("path", { class: kind, d: `M0,${y(0)}${above}${below}Z` }, element("title", {}, name));
  });
}

const mostOf = (points) => Math.max(...points.map(({ peak }) => peak));

function passName({ kind, chunk, microbatch }) {
  const names = { F: "forward", B: "backward", I: "input gradients", W: "weight gradients", optimizer: "optimizer step" };
  return kind === "optimizer" ? names[kind] : `${names[kind]} of micro-batch ${microbatch}${chunk ? `, chunk ${chunk}` : ""}`;
}

// A line is shown where a step takes at least this share of it; the scale ends above the highest one.
const SHOWN = 0.4;
const highest = (points, memory, limit) => [memory, limit].find((size) => mostOf(points) >= SHOWN * size) ?? mostOf(points);
const LABEL = 15; // height of the name of a line

// Lines over the areas, the highest last, with their names and sizes at their right ends; of two that are close the upper
// name is moved up.
function namedLines(scale, memory, limit) {
  const lines = limitsOf(memory, limit).filter(([, size]) => size <= scale).sort(([, one], [, other]) => one - other);
  let free = HEIGHT; // above the name before
  return lines.flatMap(([title, size, kind]) => {
    const y = HEIGHT * (1 - size / scale);
    const middle = Math.min(y, free);
    free = middle - LABEL;
    return [element("line", { class: `limit ${kind}`, x1: 0, x2: "100%", y1: y, y2: y }),
      element("text", { class: "line-name", x: "100%", dx: 6, y: middle, "dominant-baseline": "central", "font-size": 12 }, `${title} ${gib(size)}`)];
  });
}

function timelineFigure(points, memory, limit) {
  const most = mostOf(points);
  const scale = roundScale(1.02 * Math.max(most, highest(points, memory, limit)));
  const series = seriesOf(points);
  const passes = element("svg", { viewBox: `0 0 ${points.length} ${HEIGHT}`, preserveAspectRatio: "none", width: "100%", height: HEIGHT },
    ...areas(points, series, scale));
  points.forEach((point, place) => passes.append(element("rect", { class: "hover", x: place, y: 0, width: 1, height: HEIGHT },
    element("title", {}, `${passName(point)}: ${gib(point.peak)} GiB`))));
  const drawn = element("svg", { class: "passes", height: HEIGHT, role: "img",
    "aria-label": `${points.length} passes; at most ${gib(most)} GiB; up to ${gib(limit)} GiB fits, of ${gib(memory)} GiB` },
  passes, ...namedLines(scale, memory, limit));
  const strip = element("svg", { viewBox: `0 0 ${points.length} 10`, preserveAspectRatio: "none", height: 12, "aria-hidden": "true" },
    ...points.map(({ kind, microbatch }, place) => element("rect",
      { class: kind === "optimizer" ? "flying" : `mb-${microbatch % 8} pass-${kind}`, x: place, width: 1, height: 10 })));
  const keys = series.map(([name, kind]) => element("li", {}, element("span", { class: `swatch ${kind}` }), `${name} `,
    element("span", { class: "number" }, gib(Math.max(...points.map(({ at }) => at[name] ?? 0))))));
  const lines = lineKeys(memory, limit, scale);
  for (const key of lines) key.classList.add("narrow");
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => element("li", {}, `${Number(((share * scale) / GIB).toPrecision(3))}`)).reverse();
  return [element("div", { class: "plot" }, element("ul", { class: "ticks", "aria-hidden": "true" }, ...ticks),
    element("div", {}, drawn, strip)), element("ul", { class: "keys" }, ...keys, ...lines)];
}

// Peaks of the chosen rank at every moment of a step, in its order.
function momentBars(values, account) {
  const evaluator = shardmath[evaluatorName(state)];
  const known = DATA.evaluators[evaluatorName(state)];
  const moments = Object.keys(known.sites).map((site) => ({ site, ...linesAt(evaluator, known, account.numbers, site) }))
    .map((moment) => ({ ...moment, total: Object.values(moment.byRole).reduce((sum, size) => sum + size, 0) }))
    .filter(({ byRole, site }) => byRole.transient > 0 || site === account.site);
  const scale = 1.01 * Math.max(values.gpu_memory, ...moments.map(({ total }) => total));
  return moments.map(({ site, byRole, total }) => element("div", { class: "moment" },
    element("span", {}, known.sites[site].meaning), bar(byRole, scale, values.gpu_memory, account.limit),
    element("span", { class: "number" }, termButton(`stage.${site}.all`, gib(total)))));
}

// Why the passes are not drawn: a replay with another peak than the ledger's is a fault of one of them, as for the commands.
function disagreement(points, { total }) {
  return mostOf(points) === total ? "" : `its replay peaks at ${gib(mostOf(points))} GiB, the formula at ${gib(total)} GiB`;
}

function showTimeline(values, account) {
  const unknown = untraced(state, values, account.rank) || (account.numbers.stage_layers === 0 ? "the rank must have layers" : "");
  const microbatches = account.numbers.num_microbatches;
  const { points, walked } = unknown ? {} : tracedStep(state, values, account, microbatches);
  const why = unknown || disagreement(points, account);
  byId("timeline-why").textContent = why ? `Not drawn, as the order of allocations is not known here: ${why}.` : "";
  byId("timeline").replaceChildren();
  if (!why) {
    byId("timeline").replaceChildren(...timelineFigure(points, values.gpu_memory, account.limit));
    byId("timeline-why").textContent = (walked < microbatches
      ? `The first ${walked} of ${microbatches} micro-batches; the others repeat.` : `All ${microbatches} micro-batches.`)
      + (highest(points, values.gpu_memory, account.limit) !== values.gpu_memory ? ` Up to ${gib(account.limit)} GiB fits, of ${gib(values.gpu_memory)} GiB of the GPU, which is above the drawing.` : "");
  }
  byId("timeline-rank").textContent = why ? "" : `Rank ${account.rank}, GiB. Each column is one pass at its fullest moment, its layers from below in the order of the key. `
    + "The strip has the colour of its micro-batch, faded if the pass is backward, and grey for the optimizer step.";
  byId("moments").replaceChildren(...momentBars(values, account));
}
