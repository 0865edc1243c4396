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
    && !SWITCHES.includes(name) && (value > 1 || value && [...JOB, ...STAGES].includes(name)));
  const switches = SWITCHES.slice(1).filter((name) => own.numbers[name] && !(name in fixed)).map(flag);
  const sequence = own.numbers.tensor_parallel > 1 && !("sequence_parallel" in fixed) && !own.numbers.sequence_parallel
    ? ["--no-sequence-parallel"] : [];
  const shape = Object.keys(usual).filter((name) => own.numbers[name] !== usual[name]).map((name) => `${flag(name)} ${own.numbers[name]}`);
  const schedule = schedulesOf(own).length > 1 && own.numbers.pipeline_parallel > 1 ? [`--schedule ${own.schedule}`] : [];
  const settings = Object.entries(own.settings).map(([name, value]) => optionFor(name, value));
  const ofFile = MODELS.get(own.model).of_family;
  return [`shardmath explain ${ofFile ? "./config.json" : own.model} --gpu ${own.gpu} --implementation ${own.implementation}`,
    ...(own.network === USUAL ? [] : [`--network ${own.network}`]), ...(own.risk === START.risk ? [] : [`--risk ${own.risk}`]),
    ...numbers.map((pair) => written(...pair)).map(([name, value]) => `${flag(name)} ${value}`), ...switches, ...sequence, ...schedule,
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

// All pictures of the page as one, with titles, labels and legends, in the colours that they have here.
function picture() {
  const [width, left, right, line] = [960, 90, 150, 22]; // on the right names of lines
  const { color: ink, backgroundColor: ground } = getComputedStyle(document.body);
  const whole = element("svg", { xmlns: "http://www.w3.org/2000/svg", width, "font-family": "sans-serif", "font-size": 13, fill: ink });
  let y = 12;
  const write = (text, x, at, more = {}) => whole.append(element("text", { x, y: at, ...more }, text));
  const place = (drawn, at, x, wide) => {
    const copy = drawn.cloneNode(true);
    const originals = drawn.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((node, number) => {
      const { fill, stroke, strokeWidth, strokeDasharray } = getComputedStyle(originals[number]);
      for (const [name, value] of Object.entries({ fill, stroke, "stroke-width": strokeWidth, "stroke-dasharray": strokeDasharray }))
        node.setAttribute(name, value);
      node.removeAttribute("class");
    });
    const height = Number(drawn.getAttribute("height"));
    for (const [name, value] of Object.entries({ x, y: at, width: wide, height })) copy.setAttribute(name, value);
    copy.removeAttribute("class");
    copy.setAttribute("overflow", "visible");
    whole.append(copy);
    return height;
  };
  const legend = (items) => {
    let x = left;
    for (const item of items) {
      const [key, text] = [item.querySelector(".swatch, .line-key"), item.textContent.trim()];
      const long = 40 + 7.2 * text.length;
      if (x + long > width) [x, y] = [left, y + line];
      if (key.matches("svg")) place(key, y, x, 16);
      else whole.append(element("rect", { x, y: y + 2, width: 13, height: 13, fill: getComputedStyle(key).backgroundColor }));
      write(text, x + 20, y + 13);
      x += long;
    }
    y += 2 * line;
  };
  for (const [title, drawings, keys] of [["stages-title", "#chart svg", "#legend li"], ["time-title", "#spent > svg", "#spent tbody tr:not(.sum) th"],
    ["timeline-title", "#timeline .plot > div > svg", "#timeline .keys li"], ["pipeline-title", "#lanes svg", ""]]) {
    const found = [...document.querySelectorAll(drawings)].filter((drawn) => drawn.checkVisibility());
    if (!found.length) continue;
    write(byId(title).textContent, 12, (y += line), { "font-size": 16, "font-weight": 600 });
    y += 12;
    for (const drawn of found) {
      const [name, number] = [...drawn.parentElement.children].filter((node) => node.matches("span")).map((node) => node.firstChild.data);
      const height = place(drawn, y, left, width - left - right);
      if (name) write(name, 12, y + 16);
      if (number) write(number, width - right + 58, y + 16, { "text-anchor": "end" });
      if (height === HEIGHT) document.querySelectorAll(".ticks li").forEach((tick, part) =>
        write(tick.textContent, left - 8, y + (HEIGHT * part) / 4 + 4, { "text-anchor": "end" }));
      y += height + (height === HEIGHT ? 0 : 6);
    }
    y += 6;
    if (keys) legend([...document.querySelectorAll(keys)].filter((key) => key.checkVisibility()));
  }
  whole.prepend(element("rect", { width, height: y, fill: ground }));
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
  button.style.minWidth = `${button.offsetWidth}px`; // so that the buttons beside it stay in place
  writeLink();
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
    byId("announced").textContent = "The link is copied.";
  } catch { // a browser may refuse
    notice("The browser does not let the page copy: the link is in the address bar.");
  }
  setTimeout(() => { button.textContent = "Copy link"; }, 2000);
}
