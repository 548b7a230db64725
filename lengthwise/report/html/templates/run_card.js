// A run in words: what became of it, how it went, and every setting it was trained with.
const words = (name) => name.replaceAll("_", " ");
const inWords = (value) => {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.map(inWords).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([name, each]) => `${words(name)} ${inWords(each)}`).join(", ");
  if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) >= 10_000) return value.toLocaleString("en");
  return String(value);
};

function facts(title, values) {
  const rows = Object.entries(values).map(([name, value]) =>
    create("tr", {}, create("th", { scope: "row", textContent: words(name) }), create("td", { textContent: inWords(value) })));
  return create("table", { className: "facts" }, create("caption", { textContent: title }), create("tbody", {}, ...rows));
}

const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// Lines over training steps, from 0 to the highest value.
function stepLines(title, lines, top) {
  const [width, height, left, right, upper, lower] = [340, 150, 34, 232, 12, 124];
  const last = Math.max(1, ...lines.flatMap(({ points }) => points.map(([step]) => step)));
  const x = (step) => left + (step / last) * (right - left);
  const y = (value) => lower - (Math.min(value, top) / top) * (lower - upper);
  const label = (text, at, up, anchor) =>
    svg("text", { x: at, y: up, "font-size": 11, "text-anchor": anchor, fill: "currentColor", "fill-opacity": 0.78 }, text);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title });
  for (const value of [0, top / 2, top]) {
    drawing.append(
      svg("path", { d: `M${left},${y(value)}H${right}`, stroke: "currentColor", "stroke-opacity": 0.15 }),
      label(String(Number(value.toPrecision(2))), left - 5, y(value) + 4, "end"),
    );
  }
  drawing.append(label("step 0", left, lower + 16, "start"), label(last.toLocaleString("en"), right, lower + 16, "end"));
  let named = upper;
  for (const { name, points, dashes } of lines) {
    const path = points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)},${y(value).toFixed(1)}`).join("");
    drawing.append(svg("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-dasharray": dashes }));
    const end = Math.max(named, y(points.at(-1)[1]));
    if (lines.length > 1) drawing.append(label(name, right + 6, end + 4, "start"));
    named = end + 14;
  }
  return create("figure", {}, create("figcaption", { textContent: title }), drawing);
}

function curvesOf(run) {
  const { columns, rows } = tables.validations ?? { columns: [], rows: [] };
  const at = Object.fromEntries(columns.map((name, i) => [name, i]));
  const own = rows.filter((row) => row[at.task] === run.task && row[at.encoding] === run.encoding && row[at.seed] === run.seed);
  const line = (name, column, dashes) => {
    const points = own.filter((row) => row[at[column]] !== null).map((row) => [row[at.step], row[at[column]]]);
    return { name, points, dashes };
  };
  const lines = [line("training lengths", "validation", "4 3"), line("unseen lengths", "unseen", "none")]
    .filter(({ points }) => points.length > 1)
    .sort((a, b) => b.points.at(-1)[1] - a.points.at(-1)[1]);
  return lines.length ? [stepLines("Exact match at each validation", lines, 1)] : [];
}

function lossOf(points) {
  if (!points) return [];
  const top = Math.max(...points.map(([, loss]) => loss)) || 1;
  return [stepLines("Training loss", [{ name: "loss", points, dashes: "none" }], top)];
}

// When something was: without what nobody reads of it.
const moment = (text) => String(text ?? "").replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d\+00:00$/, "$1 $2 UTC");

function runCard(description, row, column, losses) {
  const { settings, finished, versions, hardware, ...about } = description;
  const { numerics, seed, ...sections } = settings;
  const value = (name) => row[column[name]];
  const result = {
    "unseen lengths": value("unseen"),
    "training lengths": value("training_lengths"),
    outcome: value("outcome"),
    ...finished,
  };
  const own = ["fingerprint", "train_lengths", "test_lengths", "examples", "precision", "parameters", "parameters_of_encoding",
    "attention_scale", "encoding_of_each_layer", "encoding_resolved"];
  return [
    create("div", { className: "curves" }, ...curvesOf(description), ...lossOf(losses)),
    create("div", { className: "columns" },
      facts("Result", result),
      facts("Model and data", Object.fromEntries(own.filter((name) => name in about).map((name) => [name, about[name]]))),
      ...Object.entries(sections).map(([name, values]) =>
        facts(`Settings: ${words(name)}`, Array.isArray(values) ? Object.fromEntries(values.map((each, i) => [`part ${i + 1}`, each])) : values)),
      facts("Code and machine", { started: moment(about.started), commit: about.commit, numerics, ...hardware, ...versions })),
    create("details", {}, create("summary", { textContent: "As JSON" }),
      create("pre", { tabIndex: 0, textContent: JSON.stringify(description, null, 2) })),
  ];
}
