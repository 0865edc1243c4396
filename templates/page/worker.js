// The search beside the page: it reports a few times a second, and ends with the answer.
if (typeof document === "undefined") onmessage = ({ data: { data, state } }) => {
  use(data);
  const rated = (entry) => {
    const evaluator = shardmath[entry.part.evaluator];
    const numbers = evaluator.times(entry.values, evaluator.terms(entry.values));
    return { ...entry, rates: { tokensPerSecondPerGpu: numbers["step.tokens_per_second_per_gpu"], mfu: numbers["step.mfu"],
      costPerToken: numbers["step.cost_per_token"] } };
  };
  // The answers so far, with rates of the layouts that are shown.
  const counts = ({ legal, verdicts, refused, slow }) => ({ legal, verdicts, refused, slow });
  const plain = (answers) => {
    const { shown } = answers;
    return { ...counts(answers), choices: choose(shown).map(rated), fastest: distinct(shown.best, FASTEST).map(rated),
      nearest: shown.best.length ? [] : shown.everything.entries.slice(-10).reverse().map(rated), excluded: excludedBy(shown),
      byRule80: byRule80(shown, state), front: shown.everything.entries };
  };
  const plans = plansOf(state);
  const script = URL.createObjectURL(new Blob([nestsOf(plans)], { type: "text/javascript" }));
  importScripts(script);
  URL.revokeObjectURL(script);
  let [last, shown] = [performance.now(), performance.now() - 1700]; // the first rows come soon
  let begun = last;
  const answers = searched(state, (share, sofar) => {
    const now = performance.now();
    if (!share) begun = now;
    if (now - last < 100) return;
    last = now;
    const full = now - shown > 2000;
    if (full) shown = now;
    const left = now - begun > 3000 ? ((now - begun) * (1 - share)) / share / 1000 : undefined;
    postMessage({ share, left, ...(full ? plain(sofar) : counts(sofar)) });
  }, HUGE, plans);
  postMessage({ share: 1, done: true, ...plain(answers) });
};
