// The pipeline schedule: every pass of every rank, coloured by micro-batch, with what is in flight.
const MOST_PASSES = 2400;
const ROW = 28;

// Micro-batches that are drawn: enough to fill and drain the pipeline, as many as there is room for.
function drawnMicrobatches(schedule, p, V, group, all) {
  const full = { zbv: 2 * p, dualpipev: 2 * p + 1, gpipe: 8 }[schedule] ?? (V > 1 ? 2 * group : 2 * p);
  const room = Math.max(group, Math.floor(MOST_PASSES / (2 * p * V)));
  return Math.min(all, Math.max(full, Math.min(all, 8)), schedule === "dualpipev" ? Infinity : room);
}

function lastsOf(time, V) {
  return (rank, kind) => {
    const numbers = time.ranks?.[rank];
    const [forward, backward] = numbers
      ? [numbers["stage.forward_computing"], numbers["stage.backward_computing"] + (numbers["stage.recomputing"] ?? 0)] : [1, 2];
    return (kind === "F" ? forward : kind === "B" ? backward : backward / 2) / V;
  };
}

function passRect(action, scale, flying) {
  const { kind, chunk, microbatch, start, end } = action;
  return element("rect", { class: `mb-${microbatch % 8} pass-${kind}`, x: `${(100 * start) / scale}%`,
    width: `${(100 * (end - start)) / scale}%`, y: 0, height: 15 },
  element("title", {}, `${passName({ kind, chunk, microbatch })}; ${flying} in flight after it`));
}

function pipelineRow(rank, actions, scale, most) {
  const flying = inFlight(actions);
  const drawn = element("svg", { height: ROW, "aria-hidden": "true" });
  for (const [place, action] of actions.entries()) {
    drawn.append(passRect(action, scale, flying[place]));
    const until = actions[place + 1]?.end ?? scale;
    const height = (11 * flying[place]) / most;
    drawn.append(element("rect", { class: "flying", x: `${(100 * action.end) / scale}%`, width: `${(100 * (until - action.end)) / scale}%`,
      y: ROW - height, height }));
  }
  return element("div", { class: "lane" }, element("span", {}, `rank ${rank}`), drawn,
    element("span", { class: "number" }, String(Math.max(...flying))));
}

function showPipeline(values, accounts, time) {
  const { pipeline_parallel: p } = values;
  byId("pipeline").hidden = p < 2;
  if (p < 2) return;
  const schedule = scheduleName(state, values);
  const V = schedule === "1f1b" ? 1 : Math.max(values.virtual_pipeline, FOLDED.includes(schedule) ? 2 : 1);
  const { num_microbatches: all, group_size = p } = accounts[0].numbers;
  const group = V > 1 || schedule === "zero_bubble" ? group_size : p;
  const m = drawnMicrobatches(schedule, p, V, group, all);
  const ranks = placed(schedule, p, m, V, group, lastsOf(time, V));
  const scale = Math.max(...ranks.flat().map(({ end }) => end));
  const most = Math.max(...ranks.flatMap(inFlight));
  const isSplit = ranks.flat().some(({ kind }) => kind === "W");
  const shown = ranks.length <= 16 ? [...ranks.keys()] : Array.from({ length: 16 }, (_, place) => (place < 8 ? place : p - 16 + place));
  byId("pipeline-hint").textContent = `Schedule ${schedule}${V > 1 ? ` with ${V} chunks on each rank` : ""}: ${m < all ? `the first ${m} of ` : ""}`
    + `${count(all)} micro-batches. Full colours are forward, faded ones backward${isSplit ? ", with the faintest for gradients of weights" : ""}; the grey bars below are ${V > 1 ? "chunks" : "micro-batches"} in flight, `
    + "with the most at the right.";
  byId("lanes").classList.toggle("fine", ranks[0].length > 48); // lines between passes would hide them
  byId("lanes").replaceChildren(...rowsOfRanks(shown, (rank) => pipelineRow(rank, ranks[rank], scale, most)));
}
