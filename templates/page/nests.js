// Loops over the layouts of a part, where each term of memory and of time is computed in the outermost loop in which all that
// it depends on is known. An evaluator has its terms as lines of a function; here they are sorted by loop into functions of
// their own, one for each loop, with the same helpers and so with the same numbers.
const CHECKED = (() => {
{% include "_helpers.js.jinja" %}
  return { exact, ratio, ceil_div, floor_div, divides, lcm, whole };
})();
const PLAIN = { ...CHECKED, exact: (number) => number, ratio: (numerator, denominator) => numerator / denominator, ceil_div,
  floor_div: (numerator, denominator) => Math.floor(numerator / denominator), divides };

// A function's terms by loop as source: what a loop sets for those inside of it, and what it has for itself.
function loopsOf(method, depthOf, helpers, loops) {
  const text = method.toString();
  const terms = [...text.matchAll(/^\s*const (\w+) = exact\((.*)\);$/gm)];
  const [, result] = /^\s*return (.*);$/m.exec(text);
  const inputs = /\(\{ ([^}]*) \}/.exec(text)[1].split(", ");
  const depths = new Map(inputs.map((name) => [name, depthOf.get(name) ?? 0]));
  const inside = new Map(); // the innermost loop that has a name in a term
  const namesIn = (form, depth) => {
    const names = (form.match(/[A-Za-z_]\w*/g) ?? []).filter((name) => depths.has(name));
    for (const name of names) inside.set(name, Math.max(depth ?? 0, inside.get(name) ?? 0));
    return names;
  };
  for (const [, name, form] of terms) {
    const depth = Math.max(0, ...namesIn(form).map((other) => depths.get(other)));
    depths.set(name, depth);
    namesIn(form, depth);
  }
  namesIn(result, loops - 1);
  const isShared = (name) => inside.get(name) > depths.get(name);
  const set = (name, form) => `${isShared(name) ? "" : "const "}${name} = ${form};`;
  const bodies = Array.from({ length: loops }, () => []);
  for (const name of inputs) if (inside.has(name)) bodies[depths.get(name)].push(set(name, `values.${name}`));
  for (const [, name, form] of terms) if (inside.has(name)) bodies[depths.get(name)].push(set(name, `exact(${form})`));
  const shared = [...depths.keys()].filter((name) => inside.has(name) && isShared(name));
  const innermost = bodies.pop();
  return `(({ ${Object.keys(helpers).join(", ")} }) => {
let ${["fresh = 0", ...shared].join(", ")};
${bodies.map((body, depth) => `function loop${depth}(values) {\n${body.join("\n")}\nfresh = ${depth + 1};\n}`).join("\n")}
function innermost(values) {\n${innermost.join("\n")}\nreturn ${result};\n}
return {
changed(depth) { if (fresh > depth) fresh = depth; },
of(values) {\n${bodies.map((_, depth) => `if (fresh === ${depth}) loop${depth}(values);`).join("\n")}\nreturn innermost(values);\n},
};
})`;
}

// The script of the loops of all plans: it sets `shardmath.nests`.
function nestsOf(plans) {
  const sources = plans.map(({ evaluator, steps }) => {
    const depthOf = new Map(steps.flatMap(({ symbols, derived }, depth) => [...symbols, ...derived.map(([name]) => name)].map((name) => [name, depth + 1])));
    const loops = steps.length + 1;
    return `{ memory: ${loopsOf(evaluator.judgedOf, depthOf, CHECKED, loops)}(CHECKED),\n`
      + `time: ${loopsOf(evaluator.secondsOf, depthOf, PLAIN, loops)}(PLAIN) }`;
  });
  return `"use strict";\nshardmath.nests = [${sources.join(",\n")}];`;
}
