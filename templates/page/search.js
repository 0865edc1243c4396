// Every layout of a job, in the order of the spaces that `shardmath recommend` searches.

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
  return part.axes.map(([name, rule]) => {
    for (const symbol of symbolsOf(name)) open.delete(symbol);
    const step = { name, symbols: symbolsOf(name), candidates: candidatesOf(rule, values), derived: [], tests: [] };
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

// Call `visit` with the values of every legal layout, and `report` now and then with the share that is done.
function everyLegal(part, base, visit, report) {
  const evaluator = shardmath[part.evaluator];
  const values = { ...base };
  const steps = planOf(part, evaluator, values);
  const labels = {};
  const met = (tests) => {
    for (const test of tests) if (!test(values)) return false;
    return true;
  };
  const walk = (depth, start, share) => {
    if (depth === steps.length) return visit(values, labels, evaluator);
    const { name, symbols, candidates, before, derived, after } = steps[depth];
    const each = share / candidates.length;
    for (const [place, candidate] of candidates.entries()) {
      labels[name] = candidate;
      if (name === "recompute") for (const symbol of symbols) values[symbol] = Number(part.modes[candidate].includes(symbol));
      else values[name] = candidate;
      if (depth < 3) report(start + place * each);
      if (!met(before)) continue;
      for (const [symbol, formula] of derived) values[symbol] = formula(values);
      if (met(after)) walk(depth + 1, start + place * each, each);
    }
    return undefined;
  };
  walk(0, 0, 1);
}

// The layouts of all parts, asked for what `choose` needs. `timed` is false where no time is known.
function searched(state, report = () => {}) {
  const parts = partsOf(state);
  const answers = new Answers();
  for (const [number, part] of parts.entries()) {
    const base = baseOf(state, part);
    everyLegal(part, base, (values, labels, evaluator) => {
      try {
        const { peak, process, limits } = evaluator.judgedOf(values);
        const verdict = evaluator.verdict(peak, ...limits);
        answers.add({ peak, process, seconds: evaluator.secondsOf(values), verdict }, values, labels, part);
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        answers.refused++;
      }
    }, (share) => report((number + share) / parts.length, answers));
  }
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
