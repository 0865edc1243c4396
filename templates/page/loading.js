// The packed data, and evaluators, which are made into scripts when they are needed.
const loaded = new Map();

async function unpacked(id) {
  const text = byId(id).textContent;
  const bytes = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

function scriptOf(name) {
  const runs = DATA.scripts[name];
  const parts = [];
  for (let place = 0; place < runs.length; place += 2) parts.push(...DATA.lines.slice(runs[place], runs[place] + runs[place + 1]));
  return parts.join("\n");
}

// Load an evaluator once. The policy allows scripts that the scripts of the page make, and no others.
function load(name) {
  if (!loaded.has(name)) loaded.set(name, loadedFrom(scriptOf(name)));
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

// Data for a worker: no formulas, no texts.
function dataForWorker() {
  const { models, parts, variants, gpus, risks, evaluators, choosing, roles, spent, settings } = DATA;
  return { models, parts, variants, gpus, risks, evaluators, choosing, roles, spent, settings };
}

// The search of a job as a worker; its source is that of the page and of the evaluators that it needs.
function workerFor(chosen) {
  const names = [...new Set(partsOf(chosen).map((part) => part.evaluator))];
  const source = [...names.map(scriptOf), byId("engine").textContent];
  const address = URL.createObjectURL(new Blob([source.join("\n")], { type: "text/javascript" }));
  const worker = new Worker(address);
  worker.postMessage({ data: dataForWorker(), state: structuredClone(chosen) });
  return worker;
}
