// Memory of each pipeline rank as stacked bars, and the account of the chosen one.

// Lines in bars and over the timeline: their names, bytes and kinds.
function limitsOf(memory, limit) {
  const rule = shardmath[evaluatorName(state)].RULE_SHARE;
  return [["the most that fits", limit, "fitting"], [`${100 * rule} % of the GPU`, rule * memory, "soft"], ["all of the GPU", memory, ""]];
}

// Keys of the lines that a scale of so many bytes has; where it is not known, of all, without their sizes.
function lineKeys(memory = 0, limit = 0, scale = 0) {
  return limitsOf(memory, limit).filter(([, size]) => size <= scale).map(([title, size, kind]) => element("li", {},
    element("svg", { class: "line-key", width: 16, height: 16, "aria-hidden": "true" },
      element("line", { class: `limit ${kind}`, x1: 8, x2: 8, y1: 0, y2: 16 })), size ? `${title} ${gib(size)}` : title));
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
  for (const [, size, kind] of limitsOf(memory, limit)) {
    const x = `${(100 * size) / scale}%`;
    drawn.append(element("line", { class: `limit ${kind}`, x1: x, x2: x, y1: 0, y2: 22 }));
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

// The lines of every role under its sum, as `shardmath explain` has them: a table for each role, side by side where there is room.
function showAccount(account) {
  const { sites } = DATA.evaluators[evaluatorName(state)];
  const at = sites[account.site] ? whenOf(sites[account.site].meaning) : "";
  byId("account-rank").textContent = `GiB on rank ${account.rank}${at && `, which peaks ${at}`}.`;
  byId("lines").replaceChildren(...DATA.roles.filter((role) => account.byRole[role]).map((role) => element("table", {},
    element("thead", {}, element("tr", {},
      element("th", { scope: "col" }, element("span", { class: `swatch ${ROLE_CLASS(role)}` }), role),
      element("td", {}, isTerm(role, account) ? termButton(`stage.${role}`, gib(account.byRole[role])) : gib(account.byRole[role])),
      element("td", {}, role === "transient" ? "at the peak" : ""))),
    element("tbody", {}, ...account.lines.filter((line) => line.role === role)
      .map(({ term, component, bytes }) => row("td", element("span", {}, ...breakable(component)), termButton(term, gib(bytes)), termButton(term)))))),
  element("table", { class: "sum" }, element("tbody", {}, element("tr", {}, element("th", { scope: "row" }, "total"),
    element("td", {}, termButton("stage.total", gib(account.total))), element("td", {}, termButton("stage.total"))))));
}
