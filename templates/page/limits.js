// Parameters as the commands have them, with the limits that the page has.
const ROWS = new Map(Object.entries(DATA.parameters).map(([name, { unit, kind, meaning, limits }]) => [name, [name, unit, ...limits, kind, meaning]]));
const limitsOf = (name) => ROWS.get(name).slice(2, 4);
const sequencesAtOnce = ({ micro_batch_size, data_parallel }) => micro_batch_size * data_parallel;
const noWord = () => "";

function withinLimits(name, value) {
  const [least, most] = limitsOf(name);
  return typeof value === "string" ? null : Math.min(Math.max(Math.round(Number(value)), least), most);
}
