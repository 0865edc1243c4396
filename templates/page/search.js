// Every layout of a job. Its number is its place in the spaces that `shardmath recommend` searches: of equal layouts the first
// one counts. Recompute is the innermost loop here, as it changes the fewest terms.
const INNERMOST = "recompute";
// Places of parts from which what is slower than all that can be shown is passed over.
const HUGE = 1e7;

// Steps at each axis: derived symbols that are known then, and the rules and constraints that can be decided.
function planOf(part, evaluator, values) {
  const symbolsOf = (name) => (name === "recompute" ? [...new Set(Object.values(part.modes).flat())] : [name]);
  const open = new Set([...part.axes.flatMap(([name]) => symbolsOf(name)), ...part.derived.map(([name]) => name)]);
  let derived = [...part.derived];
  let tests = [
    ...part.constraints.map(([, names, place]) => [names, FORMULAS[place]]),
    ...evaluator.TESTS,
  ];
  const isKnown = (names) => names.every((name) => !open.has(name));
  const sizes = part.axes.map(([, rule]) => candidatesOf(rule, values).length);
  const strides = new Map(part.axes.map(([name], place) => [name, sizes.slice(place + 1).reduce((all, size) => all * size, 1)]));
  const axes = [...part.axes].sort(([left], [right]) => (left === INNERMOST) - (right === INNERMOST));
  return axes.map(([name, rule]) => {
    for (const symbol of symbolsOf(name)) open.delete(symbol);
    const step = { name, symbols: symbolsOf(name), candidates: candidatesOf(rule, values), stride: strides.get(name), derived: [], tests: [] };
    const decide = () => {
      step.tests.push(...tests.filter(([names]) => isKnown(names)).map(([, test]) => test));
      tests = tests.filter(([names]) => !isKnown(names));
    };
    decide(); // before what is derived, which may divide by what the constraints refuse
    for (const item of derived.filter(([, names]) => isKnown(names))) {
      step.derived.push([item[0], FORMULAS[item[2]]]);
      open.delete(item[0]);
      derived = derived.filter((other) => other !== item);
    }
    const before = step.tests.splice(0);
    decide();
    return { ...step, before, after: step.tests };
  });
}

// Walk through the loops of a part, and call `visit` with the values of each combination of the outer ones that breaks no rule
// so far; of all loops that is every legal layout. `entering` is told how many loops have a value, each time that one changed.
function everyLegal(part, steps, values, visit, entering = () => {}, depths = steps.length) {
  const labels = {};
  const met = (tests) => {
    for (const test of tests) if (!test(values)) return false;
    return true;
  };
  const walk = (depth, number) => {
    entering(depth);
    if (depth === depths) return visit(values, labels, number);
    const { name, symbols, candidates, stride, before, derived, after } = steps[depth];
    for (let place = 0; place < candidates.length; place++) {
      const candidate = candidates[place];
      labels[name] = candidate;
      if (name === "recompute") for (const symbol of symbols) values[symbol] = Number(part.modes[candidate].includes(symbol));
      else values[name] = candidate;
      if (!met(before)) continue;
      for (const [symbol, formula] of derived) values[symbol] = formula(values);
      if (met(after)) walk(depth + 1, number + place * stride);
    }
    return undefined;
  };
  walk(0, 0);
}

// Of modes of recompute the one of least memory, and of switches of stages the first.
function thinned(step) {
  if (step.name === INNERMOST) return { ...step, candidates: step.candidates.includes("full") ? ["full"] : step.candidates.slice(-1) };
  const most = step.name.startsWith("account_for") ? 1 : step.name === "micro_batch_size" ? 3 : Infinity;
  return { ...step, candidates: step.candidates.slice(0, most) };
}

// The parts of the spaces of a job, each with the values before its loops and the plan of these.
function plansOf(state) {
  return partsOf(state).map((part) => {
    const [evaluator, values] = [shardmath[part.evaluator], baseOf(state, part)];
    return { part, evaluator, values, steps: planOf(part, evaluator, values) };
  });
}

// The layouts of all parts, asked for what `choose` needs; `report` is told now and then which share is done. In parts of more
// than `huge` places the memory of layouts is not computed that are slower than all that can be shown.
function searched(state, report = () => {}, huge = HUGE, plans = plansOf(state)) {
  const answers = new Answers();
  let [before, walked, all] = [0, 0, 0];
  const parts = plans.map(({ part, evaluator, values, steps }, place) => {
    const outer = steps.findIndex(({ name }) => name === "micro_batch_size") + 1;
    everyLegal(part, steps, { ...values }, () => { all++; }, () => {}, outer);
    return { part, evaluator, values, steps, outer, ...shardmath.nests[place] };
  });
  const weighed = ({ part, evaluator, values, steps, memory, time }, isHuge, found, entered = () => {}) => {
    const visit = (_, labels, number) => {
      try {
        const seconds = time.of(values);
        if (isHuge && found.passes(seconds)) return;
        const { peak, process, limits } = memory.of(values);
        found.add({ peak, process, seconds, verdict: evaluator.verdict(peak, ...limits) }, values, labels, part, before + number);
        if (isHuge) found.tighten();
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        found.refused++;
      }
    };
    everyLegal(part, steps, values, visit, (depth) => {
      memory.changed(depth);
      time.changed(depth);
      entered(depth);
    });
  };
  for (const known of parts) {
    const { steps, outer } = known;
    const size = steps.reduce((product, { candidates }) => product * candidates.length, 1);
    if (size > huge) { // some layouts before the others: those of them that fit say what is too slow from the start on
      answers.ahead = new Answers();
      weighed({ ...known, steps: steps.map(thinned) }, true, answers.ahead, (depth) => { if (depth === outer) report(walked / all, answers); });
      answers.bound = Math.min(answers.bound, answers.ahead.bound);
    }
    weighed(known, size > huge, answers, (depth) => { if (depth === outer) report(walked++ / all, answers); });
    before += size;
  }
  answers.ahead = null;
  return answers;
}

// The values of a part before its axes are set: those of the job, and one rank where there is no axis.
function baseOf(state, part) {
  const known = DATA.evaluators[part.evaluator];
  const { num_gpus, global_batch_size, seq_length, cents_per_gpu_hour } = state.numbers;
  const job = { num_gpus, global_batch_size, seq_length, cents_per_gpu_hour };
  const shape = Object.fromEntries(Object.keys(MODELS.get(state.model).values).map((name) => [name, state.numbers[name]]));
  const single = { tensor_parallel: 1, context_parallel: 1, pipeline_parallel: 1, micro_batch_size: 1,
    sequence_parallel: 0, data_parallel: 1, pipeline_rank: 0 };
  const values = { ...known.defaults, ...single, ...machineOf(state, known), ...known.machine, ...shape, ...job, ...state.settings, ...part.fixed };
  switchOff(known, values, state.settings);
  return values;
}
