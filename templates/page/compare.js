// Two layouts side by side: one that is kept, and the one that is chosen.
const BROKEN = "not a layout"; // the row of a rule that one of them breaks, over all columns
function metricsOf(own) {
  const { values, broken, accounts, time } = examined(own);
  const peak = largest(accounts);
  const name = (word) => `${shortName(word)}`;
  const sizes = [...SIZES, "data_parallel"].map((word) => [name(word), values[word], String]);
  const rows = [["Job and layout"], ["model", own.model], ["GPU", own.gpu], ["implementation", own.implementation], ...sizes,
    ["SP", values.sequence_parallel ? "on" : "off"], ["recompute", own.recompute], ["order of passes", scheduleName(own, values)],
    ...Object.keys({ ...own.kernels, ...state.kernels, ...kept?.kernels }).map((axis) => [axis, own.kernels[axis] ?? "usual"]),
    ...[...new Set([own, state, kept ?? own].flatMap((side) => Object.keys(side.settings)))].map((word) => [label(word), values[word], String])];
  if (broken) return [...rows, [BROKEN, broken]];
  const timed = time.unknown ? [["step, s", "unknown"]] : [
    ["step, s", time.seconds, seconds, -1], ...Object.entries(time.spent).map(([part, value]) => [`${part}, s`, value, seconds, 0]),
    ["tokens/s", time.tokensPerSecond, count, 1], ["MFU", time.mfu, percent, 1],
    ...(time.costPerToken ? [["cost per M tokens", time.costPerToken, millionCost, -1]] : [])];
  return [...rows, ["Memory"], ["verdict", peak.verdict], ["80 % rule", peak.rule], ["peak, GiB", peak.total, gib, -1],
    ...DATA.roles.map((role) => [`${role}, GiB`, peak.byRole[role], gib, 0]), ["Time"], ...timed];
}

// The change from one number to another, in percent, and whether it is for the better; of parts of a sum the change alone.
function changeOf(before, after, better) {
  if (typeof before !== "number" || typeof after !== "number" || better === undefined || !before) return [];
  const change = after / before - 1;
  if (Math.abs(change) < 5e-4) return [];
  const text = change < 9 ? `${change > 0 ? "+" : "−"}${percent(Math.abs(change))}` : `${(after / before).toPrecision(3)} times`;
  if (!better) return [text];
  return [element("span", { class: change * better > 0 ? "better" : "worse" }, `${text} ${change * better > 0 ? "better" : "worse"}`)];
}

function showComparison() {
  byId("comparison").hidden = !kept;
  byId("keep").textContent = kept ? "Compare with this" : "Keep to compare";
  if (!kept) return;
  const [before, after] = [metricsOf(kept), metricsOf(state)].map((rows) => new Map(rows.map(([name, ...rest]) => [name, rest])));
  const shown = ([value, format = String] = []) => (value === undefined ? "–" : format(value));
  const zero = ([value] = []) => value === 0 || value === undefined;
  const isTitle = (name) => [before, after].some((side) => side.get(name)?.length === 0);
  const isPart = (name) => [before, after].some((side) => side.get(name)?.[2] === 0);
  const idle = (name) => [before, after].every((side) => side.get(name)?.[0] === 1) && !["TP", "PP", "mbs", "DP"].includes(name);
  const names = [...new Set([...before.keys(), ...after.keys()])]
    .filter((name) => isTitle(name) || !idle(name) && (!zero(before.get(name)) || !zero(after.get(name))));
  byId("compared").replaceChildren(
    element("thead", {}, row("th", "", "kept", "this layout", "change")),
    element("tbody", {}, ...names.map((name) => {
      if (isTitle(name)) return element("tr", { class: "group" }, element("th", { scope: "rowgroup", colspan: 4 }, name));
      const [left, right] = [before.get(name), after.get(name)];
      const differs = shown(left) !== shown(right);
      if (name === BROKEN) return element("tr", { class: "differs" }, element("th", { scope: "row" }, name),
        element("td", { class: "words", colspan: 3 }, [left && `kept: ${left[0]}`, right && `this layout: ${right[0]}`].filter(Boolean).join("; ")));
      return element("tr", differs ? { class: "differs" } : {}, element("th", { scope: "row", class: isPart(name) ? "part" : undefined }, name),
        element("td", {}, shown(left)), element("td", {}, shown(right)),
        element("td", {}, ...(differs ? changeOf(left?.[0], right?.[0], right?.[2]) : [])));
    })),
  );
}

function keepLayout() {
  kept = structuredClone(state);
  showComparison();
  writeLink();
}

function dropLayout() {
  kept = undefined;
  showComparison();
  writeLink();
  byId("keep").focus();
}
