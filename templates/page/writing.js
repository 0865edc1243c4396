// Files of other programs, by the writers of the commands, which are translated and loaded when they are needed.

// A model with the fields that writers ask for: of some of them the page has other values.
function writtenModel(fields, values = {}) {
  const own = { ...DATA.fields, ...fields };
  for (const [name, value] of Object.entries(values)) if (name in own) own[name] = typeof own[name] === "boolean" ? Boolean(value) : value;
  const scaling = own.rope_scaling && { ...own.rope_scaling, model_dump: () => mapOf(own.rope_scaling) };
  const dump = { ...own };
  const without = ({ exclude = [] } = {}) => Object.fromEntries(Object.entries(dump).filter(([name]) => !exclude.includes(name)));
  return { ...own, rope_scaling: scaling ?? null, model_dump: (asked) => mapOf(without(asked)) };
}

function mapOf(object) {
  return new Map(Object.entries(object).map(([name, value]) => [name, value !== null && typeof value === "object" ? mapOf(value) : value]));
}

const titanModel = (name) => writtenModel(DATA.flavors[name]);
const librariesOf = (gpu) => gpu.libraries;

// The account of a layout as writers take it.
function writtenAccount(chosen, values) {
  const known = DATA.evaluators[evaluatorName(chosen)];
  const { values: usual, fields } = MODELS.get(chosen.model);
  const { machine } = GPUS.get(chosen.gpu);
  const numbers = mapOf(values);
  return {
    framework: chosen.implementation, inputs: numbers, switches: numbers,
    choices: mapOf({ ...DATA.kernels_of[chosen.implementation], ...known.changed }), stages: [],
    model: writtenModel({ ...fields, ...chosen.file, ...(Object.keys(chosen.file).length ? { name: "config.json" } : {}) }, Object.fromEntries(Object.keys(usual).map((name) => [name, values[name]]))),
    gpu: { ...machine, libraries: mapOf(machine.libraries) },
  };
}

function formatsOf({ implementation }) {
  return Object.keys(DATA.formats).filter((name) => DATA.formats[name].implementation === implementation);
}

// The text of a file. Throws Unread where no setting of the format says what is chosen.
async function writtenFile(format, chosen = state) {
  await load("writers");
  const { values, broken } = examined(chosen);
  if (broken) throw new Unread(broken);
  const refused = DATA.unwritten[chosen.model]?.[chosen.implementation]?.[format]?.[kernelKey(chosen.kernels)];
  if (refused) throw new Unread(refused);
  const { WRITERS, InputError, touched } = shardmath.writers;
  touched.clear();
  let text;
  try {
    text = WRITERS[format](writtenAccount(chosen, values), null);
  } catch (error) {
    if (error instanceof InputError) throw new Unread(error.message);
    throw error;
  }
  const { defaults } = DATA.evaluators[evaluatorName(chosen)];
  const unsaid = Object.entries(chosen.settings).filter(([name, value]) => !touched.has(name) && !DATA.beside.includes(name)
    && DATA.parameters[name].kind !== "machine" && value !== defaults[name]).map(([name, value]) => `${name} = ${value}`);
  if (unsaid.length) throw new Unread(`write = ${format}: must be a format that can say ${unsaid.slice(0, 3).join(", ")}.`);
  return text;
}
