// The answer first: does it fit, how long is a step, how many tokens, what does it cost.
function tile(id, title, value, unit, ...below) {
  return element("div", { class: "tile", id }, element("h3", {}, title),
    element("p", { class: "figure" }, value, unit && element("span", { class: "unit" }, ` ${unit}`)), ...below);
}

function note(...children) {
  return element("p", { class: "note" }, ...children);
}

// The memory of the GPU as a bar, with what is used and the mark of the most that fits; beyond it up to the peak, with a
// mark of its own at its end.
function gauge(share, verdict, limit) {
  const whole = Math.max(1, share);
  const mark = (size, kind) => element("line", { class: kind, x1: `${(100 * size) / whole}%`, x2: `${(100 * size) / whole}%`, y1: 0, y2: 16 });
  return element("svg", { class: "gauge", "aria-hidden": "true", height: 16 },
    element("rect", { class: "track", width: "100%", y: 4, height: 8, rx: 4 }),
    element("rect", { class: `used ${verdict}`, width: `${(100 * share) / whole}%`, y: 4, height: 8, rx: 4 }),
    mark(limit, "mark"), ...(share > 1 ? [mark(1, "limit")] : []));
}

function memoryTile(values, accounts) {
  const peak = largest(accounts);
  const share = peak.total / values.gpu_memory;
  const { sites } = DATA.evaluators[evaluatorName(state)];
  const when = sites[peak.site] ? `, ${whenOf(sites[peak.site].meaning)}` : "";
  const likely = chance(chanceOf(shardmath[evaluatorName(state)], peak, values.gpu_memory));
  const place = shardmath[evaluatorName(state)].VERDICTS.findIndex(([name]) => name === peak.verdict);
  return tile("tile-memory", "Peak memory", termButton("stage.total", gib(peak.total)), "GiB",
    element("p", { class: "line" }, badge(peak.verdict), ` ${shareOf(share, `${gib(values.gpu_memory).replace(/\.00$/, "")}\u00a0GiB`)}`),
    gauge(share, VERDICT_CLASS[place], peak.limit / values.gpu_memory),
    note(`Up to ${gib(peak.limit)} GiB fits. The peak is on rank ${peak.rank}${when}.`),
    note(`The process runs out of memory with a probability of ${likely}. By the `, element("span", { class: "whole" }, "80 % rule"), `: ${peak.rule}.`));
}

function whenOf(meaning) {
  return meaning.startsWith("inside ") ? meaning : `when ${meaning}`;
}

// Why no time is known, and what to do about it on this page.
function untimedBecause(why) {
  return why.startsWith("network = ") ? "this GPU has no usual network between nodes. Choose one" : why;
}

function timeTiles(time) {
  if (time.unknown) return [tile("tile-time", "Step time", "–", "", note(`Step time is not computed: ${untimedBecause(time.unknown)}.`))];
  const { error, measured, unmeasured } = time;
  const band = error === null ? "No run on such GPUs was measured."
    : `${seconds(time.seconds * (1 - error))} to ${seconds(time.seconds * (1 + error))} s: of ten measured steps `
      + `${measured} nine were within ${percent(error)}${unmeasured && `; on ${unmeasured} none was measured`}.`;
  const cost = time.costPerToken
    ? [tile("tile-cost", "Cost", termButton("step.cost_per_token", millionCost(time.costPerToken)), "",
      element("p", { class: "line" }, "for a million tokens"),
      note(`${Number((time.costPerToken * time.tokens).toPrecision(3))} for a step, in your currency.`))]
    : [];
  return [
    tile("tile-time", "Step time", termButton("step.time", seconds(time.seconds)), "s",
      element("p", { class: "line" }, error === null ? "" : `± ${percent(error)}`), note(band)),
    tile("tile-tokens", "Throughput", termButton("step.tokens_per_second", count(time.tokensPerSecond)), "",
      element("p", { class: "line" }, `tokens/s, ${count(time.tokensPerSecondPerGpu)} for each GPU`),
      note(`${count(time.tokens)} tokens a step.`)),
    tile("tile-mfu", "MFU", termButton("step.mfu", percent(time.mfu)), "",
      element("p", { class: "line" }, `HFU ${percent(time.hfu)}`),
      note(time.joulesPerToken ? `${time.joulesPerToken.toPrecision(3)} J for a token.` : "Power is not known.")),
    ...cost,
  ];
}

// A layout that breaks a rule: the rule, its field marked, and below it the nearest legal value once it is known.
function showBroken(broken, refusal) {
  if (refusal) document.querySelector(["name", "check", "setting"].map((kind) => `#controls [data-${kind}="${refusal.field}"]`).join())
    ?.setAttribute("aria-invalid", "true");
  byId("headline").replaceChildren(element("div", { class: "tile wide" },
    element("p", { class: "line" }, element("span", { class: "badge out" }, "not a layout")),
    element("p", { id: "broken" }, `${broken}.`), element("p", { id: "nearest" }, refusal ? "Nearest legal: …" : ""),
    element("p", { class: "note" }, "Change one of these numbers, or take over a layout from the list or the map: all of theirs are legal.")));
  byId("announced").textContent = `Not a layout: ${broken}.`;
  byId("process").replaceChildren();
  if (refusal) showNearestSoon(refusal);
}

function showHeadline(values, accounts, time, broken, refusal) {
  clearTimeout(seeking);
  document.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
  if (broken) return showBroken(broken, refusal);
  const peak = largest(accounts);
  const tiles = [memoryTile(values, accounts), ...timeTiles(time)];
  byId("headline").className = ["tiles", ...(tiles.length === 2 ? ["two"] : tiles.length === 5 ? ["five"] : [])].join(" ");
  byId("headline").replaceChildren(...tiles);
  byId("announced").textContent = `${gib(peak.total)} GiB, ${peak.verdict}${time.unknown ? "" : `, ${seconds(time.seconds)} s`}`;
  const process = ["allocated", "reserved", "total"].map((name) => gib(peak.numbers[`process.${name}`]));
  byId("process").replaceChildren(`On that rank: allocated ${process[0]}, reserved ${process[1]}, process ${process[2]} GiB. `
    + `DP ${values.data_parallel}. `
    + (DATA.evaluators[evaluatorName(state)].momentsCounted ? "" : "Counted are saved tensors and the loss."));
  return undefined;
}

// Where the time of a step goes, on the slowest rank.
function showTime(time) {
  byId("time").hidden = !time || Boolean(time.unknown);
  if (!time || time.unknown) return;
  const parts = Object.entries(time.spent).filter(([, value]) => value >= 5e-4 * time.seconds);
  const inColumn = (value) => value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(time.seconds)))); // their points below each other
  let start = 0;
  const bar = element("svg", { class: "spent", "aria-hidden": "true", height: 28 });
  for (const [part, value] of parts) {
    const width = (100 * value) / time.seconds;
    bar.append(element("rect", { class: `part-${part}`, x: `${start}%`, width: `${width}%`, height: 28 },
      element("title", {}, `${part} ${seconds(value)} s`)));
    start += width;
  }
  const lines = parts.map(([part, value]) => element("tr", {},
    element("th", { scope: "row", "data-words": DATA.spent[part] }, element("span", { class: `swatch part-${part}` }), part),
    element("td", {}, termButton(`spent.${part}`, inColumn(value))), element("td", {}, percent(value / time.seconds)),
    element("td", { class: "words" }, DATA.spent[part])));
  byId("spent").replaceChildren(bar, element("div", { class: "scroll" }, element("table", { "aria-labelledby": "time-title" },
    element("caption", {}, `Rank ${time.rank}, the slowest`),
    element("thead", {}, row("th", "part", "seconds", "share", "what for")), element("tbody", {}, ...lines,
      element("tr", { class: "sum" }, element("th", { scope: "row" }, "step"),
        element("td", {}, termButton("step.time", inColumn(time.seconds))), element("td", {}, "100%"), element("td"))))));
}
