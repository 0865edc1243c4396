// Controls of the job, the layout and the shape, made from the parameters.
const TITLES = { model: "Model", gpu: "GPU", network: "Network between nodes", risk: "Accepted risk of running out",
  implementation: "Implementation", recompute: "Recompute",
  schedule: "Order of passes", cents_per_gpu_hour: "Price of one GPU for an hour, in your currency" };

function label(name) {
  const { meaning } = DATA.parameters[name];
  return TITLES[name] ?? meaning[0].toUpperCase() + meaning.slice(1);
}

function selectFor(name) {
  return element("label", { class: "control", "data-control": name }, element("span", {}, TITLES[name]),
    element("select", { "data-name": name }));
}

function sliderFor(name) {
  const text = label(name);
  return element(
    "div", { class: "control", "data-control": name },
    element("label", { for: `number-${name}` }, text),
    element("input", { type: "number", id: `number-${name}`, "data-name": name, ...formOf(name).field }),
    element("input", { type: "range", "data-slider": name, min: 0, "aria-label": text }),
  );
}

function checkFor(name) {
  return element("label", { class: "check", "data-control": name },
    element("input", { type: "checkbox", "data-check": name }), label(name));
}

// A control for each parameter that any evaluator of the page takes.
function build() {
  const taken = (names) => names.filter((name) => name in DATA.parameters);
  byId("job").append(...["model", "implementation", "gpu", "network"].map(selectFor),
    ...taken(JOB).map(sliderFor), selectFor("risk"));
  byId("layout").append(...taken(LAYOUT).map(sliderFor), checkFor("sequence_parallel"),
    ...["recompute", "schedule"].map(selectFor));
  byId("stages-uneven").append(...taken(STAGES).map(sliderFor), ...taken(SWITCHES.slice(1)).map(checkFor));
  byId("dimensions").append(...taken(SHAPE).map(sliderFor));
  for (const name of ["across", "down"]) byId(name).dataset.name = name;
  byId("setting-groups").append(element("fieldset", { id: "kernels" }, element("legend", {}, "Kernels"),
    element("p", { class: "hint", id: "no-kernels" }, "The page has the usual kernels of this model. For others write a page of it: ",
      element("code", {}, "shardmath page MODEL --only -o page.html")), ...Object.keys(DATA.kernels).map(kernelFor)));
  for (const [title, names] of Object.entries(DATA.settings.groups))
    byId("setting-groups").append(element("fieldset", { "data-group": title }, element("legend", {}, title), ...taken(names).map(settingFor)));
  byId("settings").addEventListener("toggle", fillSettings);
}

// A rarely changed parameter: nothing chosen is the usual value. Its label has the unit where its meaning does not say it.
function settingFor(name) {
  const words = wordsFor(name);
  const [text, { unit }] = [label(name), DATA.parameters[name]];
  const isSaid = words || unit === "place" || text.toLowerCase().includes(unit);
  const control = words
    ? element("select", { "data-setting": name, id: `set-${name}` }, element("option", { value: "" }),
      ...Object.entries(words).map(([word, value]) => element("option", { value }, word)))
    : element("input", { type: "number", "data-setting": name, id: `set-${name}`, inputmode: "numeric", step: 1 });
  return element("div", { class: "control", "data-control": name }, element("label", { for: `set-${name}` }, isSaid ? text : `${text}, ${unit}`), control);
}

function kernelFor(axis) {
  const { meaning } = DATA.kernels[axis];
  return element("div", { class: "control", "data-control": axis },
    element("label", { for: `kernel-${axis}` }, meaning[0].toUpperCase() + meaning.slice(1)),
    element("select", { id: `kernel-${axis}`, "data-kernel": axis }));
}

// The options of every axis that the page has for the model, the usual one first.
function fillKernels() {
  const pairs = kernelKeys(state).flatMap((key) => key.split(","));
  const { choices } = DATA.evaluators[usualParts(state)[0].evaluator];
  for (const select of document.querySelectorAll("[data-kernel]")) {
    const axis = select.dataset.kernel;
    const { options } = DATA.kernels[axis];
    const known = Object.keys(options).filter((option) => pairs.includes(`${axis}=${option}`));
    select.closest("[data-control]").hidden = !known.length;
    const shown = (option, more = "") => `${more}${option}: ${options[option]}`;
    if ([...select.options].map(({ value }) => value).join() !== ["", ...known].join())
      select.replaceChildren(element("option", { value: "" }, choices[axis] ? shown(choices[axis], "usual: ") : "usual"),
        ...known.map((option) => element("option", { value: option }, shown(option))));
    select.value = state.kernels[axis] ?? "";
  }
  byId("no-kernels").hidden = pairs.length > 0;
}

function wordsFor(name) {
  return DATA.settings.words[name]?.values ?? (isSwitch(name) ? { on: 1, off: 0 } : undefined);
}

// Settings that the chosen program has, each beside its usual value; they are filled while they are seen.
function fillSettings() {
  const changed = Object.keys({ ...state.settings, ...state.kernels }).length;
  byId("settings-count").textContent = changed ? ` (${changed} changed)` : "";
  if (!byId("settings").open) return;
  fillKernels();
  const usual = valuesOf({ ...state, settings: {} });
  for (const control of document.querySelectorAll("[data-setting]")) {
    const name = control.dataset.setting;
    const words = wordsFor(name);
    control.closest("[data-control]").hidden = !isSetting(name);
    if (words) control.options[0].textContent = `usual: ${Object.keys(words).find((word) => words[word] === Number(usual[name])) ?? usual[name]}`;
    else control.placeholder = usual[name] ?? "";
    if (document.activeElement !== control) control.value = state.settings[name] ?? "";
  }
  for (const group of document.querySelectorAll("[data-group]")) group.hidden = !DATA.settings.groups[group.dataset.group].some(isSetting);
}

function fillSelects() {
  for (const select of document.querySelectorAll("select[data-name]")) {
    const { name } = select.dataset;
    const options = optionsOf(name);
    if (options.join() !== [...select.options].map((option) => option.value).join())
      select.replaceChildren(...options.map((value) => {
        const text = name === "across" || name === "down" ? label(value) : value;
        return element("option", { value }, text);
      }));
    select.value = state[name];
  }
  document.querySelector("[data-control=schedule]").hidden = optionsOf("schedule").length < 2;
}

function fillSliders() {
  for (const slider of document.querySelectorAll("[data-slider]")) {
    const name = slider.dataset.slider;
    const value = state.numbers[name];
    slider.candidates = [...new Set([...CANDIDATES[name](state.numbers), value])].sort((left, right) => left - right);
    slider.max = slider.candidates.length - 1;
    slider.value = slider.candidates.indexOf(value);
    const [, shown] = written(name, value);
    slider.setAttribute("aria-valuetext", `${shown}${formOf(name).unitOf(name)}`);
    const number = byId(`number-${name}`);
    if (document.activeElement !== number || Number(number.value) !== shown) number.value = shown;
    slider.disabled = number.disabled = isFixed(name);
    slider.closest("[data-control]").hidden = PERHAPS.includes(name) && isFixed(name);
  }
  for (const check of document.querySelectorAll("[data-check]")) {
    const name = check.dataset.check;
    check.checked = Boolean(state.numbers[name]);
    check.disabled = isFixed(name);
    check.closest("[data-control]").hidden = PERHAPS.includes(name) && isFixed(name);
  }
  byId("uneven").hidden = STAGES.every(isFixed);
  fillSettings();
}

// A sentence above the answers, and below it groups of what is to be known one by one; what has no effect is folded.
function notice(text, groups = []) {
  const listed = (items) => items.flatMap((item, place) => [place ? " " : "",
    element("span", { class: "item" }, element("code", {}, item), place < items.length - 1 ? "," : "")]);
  const folded = [LAUNCHED, IDLE];
  byId("notice").replaceChildren(text, ...groups.length ? [element("ul", {}, ...groups.map(([title, items]) =>
    (folded.includes(title) ? element("li", {}, element("details", {}, element("summary", {}, `${title} (${items.length})`), ...listed(items)))
      : title ? element("li", {}, `${title}: `, ...listed(items)) : element("li", {}, ...items))))] : []);
  byId("notice").className = text.startsWith("Read: ") && !groups.length ? "done" : "";
  byId("notice").hidden = !text;
}

// Refuse what was typed: the field is marked until the next change.
function refuseField(field, name) {
  field.setAttribute("aria-invalid", "true");
  notice(`${outOfRange(name, field.value)}. All numbers are those of before.`);
}

function onInput({ target }) {
  const { name, slider, check, setting, kernel } = target.dataset;
  if (!name && !slider && !check && !setting && !kernel) return undefined;
  notice("");
  document.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
  if (kernel) {
    const { dropped, added } = pickKernel(kernel, target.value);
    const came = added.length ? `${added.map((axis) => `${axis} = ${state.kernels[axis]}`).join(", ")} came with it. ` : "";
    if (dropped.length || came) notice(dropped.length ? `${came}${dropped.join(", ")} is usual again: this page has no formulas of both. A page with both: `
      + `${pageCommand([kernel, ...dropped].map((axis) => `${axis}=OPTION`))}` : came.trimEnd());
  } else if (setting) {
    const value = target.value === "" ? undefined : Number(target.value);
    if (target.validity.badInput || (value !== undefined && !legal(setting, value))) return refuseField(target, setting);
    set(setting, value);
  } else if (slider) pick(slider, target.candidates[target.value]);
  else if (check) pick(check, Number(target.checked));
  else if (target.type === "number") {
    const value = formOf(name).read(target.value);
    if (target.value === "" || !legal(name, value)) return refuseField(target, name);
    pick(name, value);
  } else pick(name, target.value);
  return update();
}
