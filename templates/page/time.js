// The time of a step: how long, what it goes to, and what follows from it.

// Why no time is known; empty where it is.
function timeUnknown(state, values) {
  const { untimed, fp8 } = DATA.evaluators[evaluatorName(state)];
  const gpu = GPUS.get(state.gpu);
  if (!untimed && fp8 && typeof gpu.fp8 === "string" && gpu.fp8) return gpu.fp8;
  const inside = gpu.timed === "in a node" && values.num_gpus <= values.node_size;
  return untimed || (state.network in gpu.networks || gpu.timed === "everywhere" || inside ? "" : gpu.unknown);
}

// The step on the slowest rank, the first of ranks that differ by rounding only, in seconds.
function timeOf(state, values, accounts) {
  const unknown = timeUnknown(state, values);
  if (unknown) return { unknown };
  const evaluator = shardmath[evaluatorName(state)];
  const ranks = accounts.map(({ rank, numbers }) => evaluator.times({ ...values, pipeline_rank: rank }, numbers));
  const [first, least] = [ranks[0], Math.min(...ranks.map((numbers) => numbers["spent.idle"]))];
  const rank = ranks.findIndex((numbers) => numbers["spent.idle"] - least <= 1e-9 * first["step.time"]);
  const spent = {};
  for (const part of Object.keys(DATA.spent))
    if (`spent.${part}` in ranks[rank]) spent[part] = Math.max(0, ranks[rank][`spent.${part}`]);
  return {
    seconds: first["step.time"], tokens: first["step.tokens"], tokensPerSecond: first["step.tokens_per_second"],
    tokensPerSecondPerGpu: first["step.tokens_per_second_per_gpu"], mfu: first["step.mfu"], hfu: first["step.hfu"],
    joulesPerToken: first["step.energy_per_token"], costPerToken: first["step.cost_per_token"],
    rank, spent, ...errorOf(GPUS.get(state.gpu), values), ranks,
  };
}

// The share that nine of ten predicted steps were within, and which steps: models with experts have an error of their own.
const errorOf = (gpu, values) => ({
  ...(values.num_experts ? { error: gpu.error_of_experts, measured: "of models with experts" }
    : { error: gpu.error, measured: gpu.has_measured_steps ? "on such GPUs" : "on GPUs of that generation" }),
  unmeasured: gpu.has_measured_steps ? "" : gpu.name,
});

// Everything that is known of a layout: its accounts and its time, or the rule that it breaks. Numbers that doubles do not
// hold exactly are refused like a layout that breaks a rule.
function examined(state) {
  const values = valuesOf(state);
  try {
    const refusal = brokenRule(shardmath[evaluatorName(state)], values);
    if (refusal) return { values, refusal, broken: said(refusal), accounts: [] };
    const accounts = accountsOf(state, values);
    return { values, accounts, time: timeOf(state, values, accounts) };
  } catch (error) {
    if (error instanceof RangeError) return { values, broken: error.message, accounts: [] };
    throw error;
  }
}
