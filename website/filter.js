// Filter the tables of formulas: rows that have all words stay, with the headings above them. A word of one or two
// signs is a letter of formulas, as it is written there; others are parts of names and meanings, such as swiglu.gate.
(() => {
  const article = document.querySelector("article") ?? document.body;
  const heading = article.querySelector("h1");
  const sections = [];
  const rows = [];
  for (const part of article.querySelectorAll("h2, h3, p, table")) {
    const level = { H2: 0, H3: 1 }[part.tagName];
    if (level !== undefined) sections.push({ level, parts: [part], component: "", title: part.textContent });
    else if (sections.length) {
      const section = sections.at(-1);
      section.parts.push(part);
      if (part.textContent.startsWith("Component ")) section.component = part.querySelector("code")?.textContent ?? "";
      for (const row of part.tBodies?.[0]?.rows ?? []) rows.push(described(row, part, sections.length - 1));
    }
  }

  function described(row, table, place) {
    const { component, title } = sections[place];
    const cells = [...row.cells].map((cell) => cell.textContent).join(" ");
    const text = `${title} ${component}.${cells}`.toLowerCase();
    const codes = [...row.querySelectorAll("code")].map((code) => code.textContent).join(" ");
    return { row, table, place, text, letters: new Set(codes.match(/[\p{L}\p{M}_][\p{L}\p{M}\p{N}_]*/gu)) };
  }

  function show(asked) {
    const words = asked.split(/\s+/).filter(Boolean);
    const has = (row, word) => ([...word].length < 3 ? row.letters.has(word) : row.text.includes(word.toLowerCase()));
    const shown = rows.filter((row) => words.every((word) => has(row, word)));
    const kept = new Set(shown.flatMap(({ row, table }) => [row, table]));
    const open = new Set(shown.map(({ place }) => place));
    for (const place of [...open]) {
      if (sections[place].level) open.add(sections.findLastIndex(({ level }, above) => above < place && !level));
    }
    for (const { row, table } of rows) [row.hidden, table.hidden] = [!kept.has(row), !kept.has(table)];
    sections.forEach(({ parts }, place) => parts.filter(({ tagName }) => tagName !== "TABLE").forEach((part) => {
      part.hidden = words.length > 0 && !open.has(place);
    }));
    count.textContent = words.length ? ` ${shown.length} of ${rows.length} rows` : "";
  }

  const label = document.createElement("label");
  const field = label.appendChild(document.createElement("input"));
  const count = document.createElement("output");
  label.prepend("Only rows with these letters, tensors or words: ");
  Object.assign(field, { type: "search", value: new URLSearchParams(location.search).get("rows") ?? "" });
  field.style = "border: 1px solid; padding: 0.3em; font: inherit; color: inherit; background: none";
  field.addEventListener("input", () => show(field.value));
  heading.after(label, count);
  show(field.value);
})();
