{% include "page/writing.js" %}
// Exports: the command, tables, pictures, citations and the link.
function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address));
}

function commandOf(own) {
  const usual = MODELS.get(own.model).values;
  const flag = (name) => `--${name.replaceAll("_", "-")}`;
  const { fixed } = DATA.evaluators[evaluatorName(own)];
  const numbers = Object.entries(own.numbers).filter(([name, value]) => !(name in fixed) && !(name in usual)
    && !SWITCHES.includes(name) && name !== CENTS && (JOB.includes(name) || value > 1 || STAGES.includes(name) && value));
  const switches = SWITCHES.slice(1).filter((name) => own.numbers[name] && !(name in fixed)).map(flag);
  const sequence = own.numbers.tensor_parallel > 1 && !("sequence_parallel" in fixed) && !own.numbers.sequence_parallel
    ? ["--no-sequence-parallel"] : [];
  const shape = Object.keys(usual).filter((name) => own.numbers[name] !== usual[name]).map((name) => `${flag(name)} ${own.numbers[name]}`);
  const schedule = schedulesOf(own).length > 1 && own.numbers.pipeline_parallel > 1 ? [`--schedule ${own.schedule}`] : [];
  const settings = Object.entries(own.settings).map(([name, value]) => optionFor(name, value));
  const ofFile = MODELS.get(own.model).of_family;
  return [`shardmath explain ${ofFile ? "./config.json" : own.model} --gpu ${own.gpu} --implementation ${own.implementation}`,
    ...(own.network === USUAL ? [] : [`--network ${own.network}`]), ...(own.numbers[CENTS] ? [`--price ${own.numbers[CENTS] / 100}`] : []), ...(own.risk === START.risk ? [] : [`--risk ${own.risk}`]),
    ...numbers.map(([name, value]) => `${flag(name)} ${value}`), ...switches, ...sequence, ...schedule,
    ...(own.recompute === "none" ? [] : [`--recompute ${own.recompute}`]), ...Object.entries(own.kernels).map((pair) => `--kernel ${pair.join("=")}`), ...settings, ...(ofFile ? [] : shape)].join(" ");
}

// The option of the command line for a rarely changed parameter.
function optionFor(name, value) {
  const { words } = DATA.settings;
  const flag = name.replaceAll("_", "-");
  if (name in words) return `${words[name].option} ${Object.keys(words[name].values).find((word) => words[name].values[word] === value)}`;
  return isSwitch(name) ? `--${value ? "" : "no-"}${flag}` : `--${flag} ${value}`;
}

function isSwitch(name) {
  return DATA.parameters[name].limits.join() === "0,1";
}

function csvOf(rows) {
  const cell = (value) => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return `${rows.map((cells) => cells.map(cell).join(",")).join("\r\n")}\r\n`;
}

function accountCsv() {
  const { accounts } = examined(state);
  return csvOf([["rank", "term", "component", "role", "bytes"],
    ...accounts.flatMap(({ rank, lines }) => lines.map(({ term, component, role, bytes }) => [rank, term, component, role, bytes]))]);
}

function layoutsCsv() {
  const names = [...SIZES, "sequence_parallel", "data_parallel", ...STAGES, ...SWITCHES.slice(1)];
  return csvOf([["role", ...names, "recompute", "schedule", "seconds", "tokens_per_second_per_gpu", "mfu", "cost_per_token", "peak_bytes"],
    ...[...ranked.choices, ...ranked.fastest].map(({ role = "", values, labels, part, seconds: time, rates, peak }) =>
      [role, ...names.map((name) => values[name] ?? 0), labels.recompute, part.schedule, time, rates.tokensPerSecondPerGpu, rates.mfu, rates.costPerToken || "", peak])]);
}

// All pictures of the page as one, with the styles that they have here.
function picture() {
  const [width, gap] = [960, 12];
  const whole = element("svg", { xmlns: "http://www.w3.org/2000/svg", width, "font-family": "sans-serif", "font-size": 13 });
  let y = gap;
  for (const drawn of document.querySelectorAll("#chart svg, #timeline svg, #spent svg, #lanes svg")) {
    const copy = drawn.cloneNode(true);
    const originals = drawn.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((node, place) => {
      const { fill, stroke, strokeWidth, strokeDasharray } = getComputedStyle(originals[place]);
      for (const [name, value] of Object.entries({ fill, stroke, "stroke-width": strokeWidth, "stroke-dasharray": strokeDasharray }))
        node.setAttribute(name, value);
      node.removeAttribute("class");
    });
    const height = Number(drawn.getAttribute("height"));
    for (const [name, value] of Object.entries({ x: 0, y, width, height })) copy.setAttribute(name, value);
    copy.removeAttribute("class");
    whole.append(copy);
    y += height + gap;
  }
  whole.setAttribute("height", y);
  whole.setAttribute("viewBox", `0 0 ${width} ${y}`);
  return new XMLSerializer().serializeToString(whole);
}

function bibliography() {
  const name = evaluatorName(state);
  const keys = new Set(Object.keys(DATA.formulas[name]).flatMap((term) => formulaOf(name, term).sources));
  return `${[...keys].sort().map((key) => DATA.sources[key].bibtex).join("\n\n")}\n`;
}

// A file that starts the run, or why no file of this format does.
async function saveFile(format) {
  byId("exports").open = false;
  try {
    const text = await writtenFile(format);
    save(`run${DATA.formats[format].suffix}`, "text/plain", text);
    notice("");
  } catch (error) {
    if (!(error instanceof Unread)) throw error;
    notice(`${DATA.formats[format].title} cannot say this run. ${error.message}`);
  }
}

// The menu: files of the program that is chosen, then all else.
function showExports() {
  const item = (name, title) => element("button", { type: "button", "data-take": name }, title);
  const files = formatsOf(state).map((format) => element("button", { type: "button", "data-file": format }, DATA.formats[format].title));
  byId("export-list").replaceChildren(...files, ...Object.entries(EXPORTS).map(([name, [title]]) => item(name, title)));
}

const EXPORTS = {
  command: ["Command of this account", () => save("shardmath.sh", "text/x-sh",
    `#!/bin/sh\n# The account of this layout.\n${commandOf(state)}\n`)],
  account: ["Account (CSV)", () => save("account.csv", "text/csv", accountCsv())],
  layouts: ["Layouts worth trying (CSV)", () => save("layouts.csv", "text/csv", layoutsCsv())],
  picture: ["Pictures (SVG)", () => save("shardmath.svg", "image/svg+xml", picture())],
  bibtex: ["Sources (BibTeX)", () => loadFormulas().then(() => save("sources.bib", "text/x-bibtex", bibliography()))],
};

async function copyLink() {
  const button = byId("copy");
  writeLink();
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch { // a browser may refuse: the address bar has the link too
    button.textContent = "See the address bar";
  }
  setTimeout(() => { button.textContent = "Copy link"; }, 2000);
}
