// Memory of each pipeline rank as stacked bars, and the account of the chosen one.

// The lines in bars and over the timeline, as a legend has them.
const LINES = [["fitting", "the most that fits"], ["soft", "80 % of the GPU"], ["", "all of the GPU"]];
function lineKeys(kinds = LINES) {
  return kinds.map(([kind, title]) => element("li", {}, element("svg", { class: "line-key", width: 16, height: 16, "aria-hidden": "true" },
    element("line", { class: `limit ${kind}`, x1: 8, x2: 8, y1: 0, y2: 16 })), title));
}

// One bar for a rank: roles from left to right; what fits, 80 % and all of the GPU's memory as lines.
function bar(byRole, scale, memory, limit) {
  const drawn = element("svg", { "aria-hidden": "true", height: 22 });
  let start = 0;
  for (const role of DATA.roles) {
    const size = byRole[role];
    if (!size) continue;
    const [x, width] = [start, size].map((bytes) => `${(100 * bytes) / scale}%`);
    drawn.append(element("rect", { class: ROLE_CLASS(role), x, width, height: 22 }, element("title", {}, `${role} ${gib(size)} GiB`)));
    start += size;
  }
  const rule = shardmath[evaluatorName(state)].RULE_SHARE;
  for (const [size, kind] of [[limit, "limit fitting"], [rule * memory, "limit soft"], [memory, "limit"]]) {
    const x = `${(100 * size) / scale}%`;
    drawn.append(element("line", { class: kind, x1: x, x2: x, y1: 0, y2: 22 }));
  }
  return drawn;
}

// All ranks, or the ends of many, always with the one that keeps most and the chosen one.
function shownRanks(accounts) {
  const kept = [largest(accounts).rank, state.rank];
  return accounts.filter(({ rank }) => accounts.length <= 16 || rank < 6 || rank >= accounts.length - 6
    || kept.includes(rank));
}

// Rows of ranks; where some between two are left out, a line says which.
function rowsOfRanks(ranks, rowOf) {
  return ranks.flatMap((rank, place) => {
    const [first, last] = [place ? ranks[place - 1] + 1 : rank, rank - 1];
    const gap = first < last ? `ranks ${first} to ${last} are left out` : `rank ${first} is left out`;
    return [...(first <= last ? [element("p", { class: "gap" }, gap)] : []), rowOf(rank)];
  });
}

function showChart(values, accounts, chosen) {
  const scale = 1.01 * Math.max(values.gpu_memory, ...accounts.map((account) => account.total));
  const rowOf = (rank) => element("button", { type: "button", "data-rank": rank, "aria-pressed": rank === chosen.rank },
    element("span", {}, `rank ${rank}`), bar(accounts[rank].byRole, scale, values.gpu_memory, accounts[rank].limit),
    element("span", { class: "number" }, gib(accounts[rank].total), unseen(` GiB, ${accounts[rank].verdict}`)));
  byId("chart").replaceChildren(...rowsOfRanks(shownRanks(accounts).map(({ rank }) => rank), rowOf));
  byId("legend").replaceChildren(
    ...DATA.roles.filter((role) => accounts.some((account) => account.byRole[role])).map((role) => element(
      "li", {}, element("span", { class: `swatch ${ROLE_CLASS(role)}` }), `${role} `,
      element("span", { class: "number" }, gib(chosen.byRole[role])),
    )),
    ...lineKeys(),
  );
}

// True if a sum over lines is a term: not of transients, nor of activations where some are freed by then.
function isTerm(role, { byRole, numbers }) {
  return shardmath[evaluatorName(state)].whole(numbers[`stage.${role}`] ?? 0) === byRole[role];
}

// The lines of every role under its sum, as `shardmath explain` has them.
function showAccount(account) {
  const groups = DATA.roles.filter((role) => account.byRole[role]).map((role) => element(
    "tbody", {},
    element("tr", {}, element("th", { scope: "rowgroup" }, element("span", { class: `swatch ${ROLE_CLASS(role)}` }), role),
      element("th", {}, isTerm(role, account) ? termButton(`stage.${role}`, gib(account.byRole[role])) : gib(account.byRole[role])),
      element("td", {}, role === "transient" ? "at the peak" : "")),
    ...account.lines.filter((line) => line.role === role)
      .map(({ term, component, bytes }) => row("td", component, termButton(term, gib(bytes)), termButton(term))),
  ));
  const site = DATA.evaluators[evaluatorName(state)].sites[account.site];
  byId("lines").replaceChildren(
    element("caption", {}, `GiB on rank ${account.rank}${site ? `, which peaks ${whenOf(site.meaning)}` : ""}`),
    element("thead", {}, row("th", "component", "GiB", "term")), ...groups,
    element("tbody", {}, row("th", "total", termButton("stage.total", gib(account.total)), termButton("stage.total"))),
  );
}
