// The packed data, and evaluators, which are made into scripts when they are needed.
const loaded = new Map();

function bytesOf(id) {
  const text = byId(id).textContent;
  return Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

// Data that the page opens with are packed for the browser's own decoder, which is fast from its first use on.
function unpackedAtOnce(id) {
  const stream = new Blob([bytesOf(id)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

// Other data are packed for the least size.
async function unpacked(id) {
  return JSON.parse(new TextDecoder().decode(decompressed(bytesOf(id))));
}

// Unpack what the first model needs; data of an evaluator is read when it is asked for.
async function openData() {
  const { described, ...data } = await unpackedAtOnce("packed");
  use({ ...data, evaluators: lazily(data.evaluators, (runs) => JSON.parse(textOf(runs, described))) });
}

function lazily(sources, made) {
  const found = {};
  for (const [name, source] of Object.entries(sources))
    Object.defineProperty(found, name, { enumerable: true, configurable: true, get() {
      const value = made(source);
      Object.defineProperty(found, name, { value, enumerable: true });
      return value;
    } });
  return found;
}

// A text from runs of lines: the place of the first, and how many there are.
function textOf(runs, lines) {
  const [parts, numbers] = [[], runs.split(" ").map(Number)];
  for (let place = 0; place < numbers.length; place += 2) parts.push(...lines.slice(numbers[place], numbers[place] + numbers[place + 1]));
  return parts.join("\n");
}

function scriptOf(name) {
  return textOf(DATA.scripts[name], DATA.lines);
}

// Have the scripts of these names, which for other models and kernels than the first ones are unpacked then.
async function withScripts(names) {
  if (names.every((name) => name in DATA.scripts)) return;
  if (!loaded.has("scripts")) loaded.set("scripts", unpacked("packed-scripts").then(({ scripts, lines }) => {
    Object.assign(DATA.scripts, scripts);
    DATA.lines = DATA.lines.concat(lines);
  }));
  await loaded.get("scripts");
}

// Load an evaluator once. The policy allows scripts that the scripts of the page make, and no others.
function load(name) {
  if (!loaded.has(name)) loaded.set(name, withScripts([name]).then(() => loadedFrom(scriptOf(name))));
  return loaded.get(name);
}

// Load the readers of pasted texts once, which are unpacked then.
function loadReaders() {
  if (!loaded.has("readers")) loaded.set("readers", unpacked("packed-readers").then(({ script }) => loadedFrom(script)));
  return loaded.get("readers");
}

function loadedFrom(source) {
  return new Promise((resolve, reject) => {
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const script = element("script", { src: address });
    script.onload = () => resolve(URL.revokeObjectURL(address));
    script.onerror = reject;
    document.head.append(script);
  });
}

// Formulas are unpacked once the numbers are there.
function loadFormulas() {
  if (!loaded.has("formulas")) loaded.set("formulas", unpacked("packed-formulas").then((formulas) => Object.assign(DATA, formulas)));
  return loaded.get("formulas");
}

function formulaOf(name, term) {
  const place = DATA.formulas[name][term];
  return place === undefined ? undefined : JSON.parse(DATA.formula_lines[place]);
}

// Data for a worker: those of the job alone, no formulas, no texts. A copy of all would keep the page busy.
function dataForWorker({ model, gpu }, names) {
  const { parts, variants, risks, choosing, roles, spent, settings } = DATA;
  const evaluators = Object.fromEntries(names.map((name) => [name, DATA.evaluators[name]]));
  return { models: [MODELS.get(model)], gpus: [GPUS.get(gpu)], evaluators, parts, variants, risks, choosing, roles, spent, settings };
}

// Where the source of a worker is, which searches of one model share.
const addresses = new Map();
function addressFor(names) {
  const key = names.join();
  const source = () => [...names.map(scriptOf), byId("engine").textContent].join("\n");
  if (!addresses.has(key)) addresses.set(key, URL.createObjectURL(new Blob([source()], { type: "text/javascript" })));
  return addresses.get(key);
}

// The search of a job as a worker; its source is that of the page and of the evaluators that it needs.
function workerFor(chosen) {
  const names = [...new Set(partsOf(chosen).map((part) => part.evaluator))];
  const worker = new Worker(addressFor(names));
  worker.postMessage({ data: dataForWorker(chosen, names), state: structuredClone(chosen) });
  return worker;
}
