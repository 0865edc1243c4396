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
  const plain = (answers) => ({
    legal: answers.legal, verdicts: answers.verdicts, refused: answers.refused, choices: choose(answers).map(rated),
    fastest: distinct(answers.best, 10).map(rated),
    nearest: answers.best.length ? [] : answers.everything.entries.slice(-10).reverse().map(rated), excluded: excludedBy(answers),
    byRule80: byRule80(answers, state), front: answers.everything.entries,
  });
  let [last, shown] = [performance.now(), performance.now() - 1700]; // the first rows come soon
  const answers = searched(state, (share, sofar) => {
    const now = performance.now();
    if (now - last < 100) return;
    last = now;
    const full = now - shown > 2000;
    if (full) shown = now;
    postMessage({ share, ...(full ? plain(sofar) : { legal: sofar.legal, verdicts: sofar.verdicts }) });
  });
  postMessage({ share: 1, done: true, ...plain(answers) });
};
