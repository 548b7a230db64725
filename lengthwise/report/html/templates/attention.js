// The attention explorer: the map of one head, read with the pointer, with keys, and in words.
const CELL = { least: 11, most: 24, room: 560 }; // pixels of a cell, and of a map where cells need not be smaller
const LEVELS = 40; // shades; a shade is the square root of a weight, so that small weights can be seen
const LETTERS = 9; // of a token on an axis

async function exploreAttention() {
  const form = document.getElementById("map-form");
  if (!form) return;
  if (!("DecompressionStream" in window)) {
    document.getElementById("map-problem").hidden = false;
    return;
  }
  const { maps } = read("attention-maps");
  const field = form.elements;
  const holder = document.getElementById("map");
  const canvas = document.getElementById("map-heads");
  const space = "http://www.w3.org/2000/svg";
  const draw = (tag, attributes, text = "") => {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const svg = draw("svg", { "data-figure": "attention-map", "aria-hidden": "true" });
  holder.append(svg);
  const row = draw("path", { class: "cursor", fill: "none" });
  const place = draw("path", { class: "cursor place", fill: "none" });

  // Bytes of a map: layers, heads, then the rows of the lower triangle; 255 is a weight of one.
  const unpacked = new Map();
  const unpack = async (map) => {
    if (!unpacked.has(map)) unpacked.set(map, new Uint8Array(await inflated(map.weights)));
    return unpacked.get(map);
  };
  const state = { map: maps[0], layer: 0, head: 0, query: 0, key: 0, bytes: null, cell: 0, left: 0 };
  const size = () => state.map.tokens.length;
  const start = (layer, head) => (layer * state.map.heads + head) * ((size() * (size() + 1)) / 2);
  const weight = (query, key, from = start(state.layer, state.head)) => state.bytes[from + (query * (query + 1)) / 2 + key] / 255;
  const token = (place) => state.map.tokens[place].replace(/^\u2040/, "");
  const short = (place) => (token(place).length > LETTERS ? `${token(place).slice(0, LETTERS - 1)}…` : token(place));

  const fill = (select, options, wanted) => {
    select.replaceChildren(...options.map(([value, label]) => create("option", { value, textContent: label })));
    select.value = options.some(([value]) => String(value) === String(wanted)) ? wanted : options[0][0];
  };
  const distinct = (values) => [...new Set(values)].map((value) => [value, value]);
  const exampleName = (map) => `${map.seen ? "seen" : "unseen"} length, ${map.length}`;
  const counted = (count) => Array.from({ length: count }, (_, i) => [i, i + 1]);
  // Each field offers what the fields before it leave; what was chosen stays where it can.
  const offer = () => {
    fill(field.task, distinct(maps.map((map) => map.task)), field.task.value);
    const ofTask = maps.filter((map) => map.task === field.task.value);
    fill(field.encoding, distinct(ofTask.map((map) => map.encoding)), field.encoding.value);
    const examples = ofTask.filter((map) => map.encoding === field.encoding.value);
    fill(field.example, examples.map((map) => [map.seen ? "seen" : "unseen", exampleName(map)]), field.example.value || "unseen");
    const map = examples.find((each) => (each.seen ? "seen" : "unseen") === field.example.value);
    fill(field.layer, counted(map.layers), field.layer.value);
    fill(field.head, counted(map.heads), field.head.value);
    return map;
  };

  const pen = document.createElement("canvas").getContext("2d"); // measures words

  const drawMap = () => {
    const tokens = size();
    const cell = Math.max(CELL.least, Math.min(CELL.most, Math.floor(CELL.room / tokens)));
    const font = Math.min(12, cell - 1);
    pen.font = `${font}px ${getComputedStyle(document.body).fontFamily}`;
    const left = 8 + Math.ceil(Math.max(...state.map.tokens.map((_, i) => pen.measureText(short(i)).width)));
    Object.assign(state, { cell, left });
    const side = cell * tokens;
    const wide = left + side + 6;
    const tall = side + left + 6;
    svg.setAttribute("viewBox", `0 0 ${wide} ${tall}`);
    svg.setAttribute("width", wide);
    svg.setAttribute("height", tall);
    const shades = new Map();
    for (let query = 0; query < tokens; query += 1) {
      for (let key = 0; key <= query; key += 1) {
        const level = Math.round(Math.sqrt(weight(query, key)) * LEVELS);
        if (level) shades.set(level, `${shades.get(level) ?? ""}M${left + key * cell},${(query + 0.5) * cell}h${cell}`);
      }
    }
    const triangle = Array.from({ length: tokens }, (_, i) => `V${(i + 1) * cell}`).map((down, i) => `M${left + i * cell},${i * cell}h${cell}${down}`).join("");
    const target = state.map.prompt_tokens;
    const words = { "font-size": font, fill: "currentColor" };
    svg.replaceChildren(
      draw("path", { d: `M${left},0V${side}H${left + side}`, fill: "none", stroke: "currentColor", "stroke-opacity": 0.35 }),
      draw("path", { d: triangle, fill: "none", stroke: "currentColor", "stroke-opacity": 0.18 }),
      ...[...shades].map(([level, d]) => draw("path", { d, stroke: "currentColor", "stroke-opacity": level / LEVELS, "stroke-width": cell })),
      ...(target > 0 && target < tokens
        ? [draw("path", { d: `M${left},${target * cell}h${target * cell}V${side}`, fill: "none", stroke: "currentColor", "stroke-dasharray": "4 3", "stroke-opacity": 0.7 })]
        : []),
      ...state.map.tokens.flatMap((_, i) => [
        draw("text", { ...words, x: left - 4, y: (i + 0.5) * cell + font * 0.35, "text-anchor": "end" }, short(i)),
        draw("text", { ...words, transform: `translate(${left + (i + 0.5) * cell + font * 0.35},${side + 4})rotate(-90)`, "text-anchor": "end" }, short(i)),
      ]),
      row,
      place,
    );
    const { task, encoding, seed } = state.map;
    holder.setAttribute("aria-label", `Attention of ${encoding} on ${task}, seed ${seed}, ${exampleName(state.map)}, layer ${state.layer + 1}, head ${state.head + 1}`);
  };

  const drawCursor = () => {
    const { query, key, cell, left } = state;
    row.setAttribute("d", `M${left},${query * cell}h${(query + 1) * cell}v${cell}h${-(query + 1) * cell}z`);
    place.setAttribute("d", `M${left + key * cell},${query * cell}h${cell}v${cell}h${-cell}z`);
  };
  const back = (distance) => (distance === 0 ? "itself" : `${distance} back`);
  const say = () => {
    const { query, key } = state;
    drawCursor();
    document.getElementById("map-cell").textContent =
      `Query ${query + 1}, “${token(query)}”, looks at key ${key + 1}, “${token(key)}” (${back(query - key)}), with ${weight(query, key).toFixed(2)}.`;
    document.getElementById("map-strongest-title").textContent = `Strongest keys of query ${query + 1}, “${token(query)}”`;
    const keys = Array.from({ length: query + 1 }, (_, i) => i).sort((a, b) => weight(query, b) - weight(query, a)).slice(0, 5);
    document.getElementById("map-strongest").replaceChildren(
      ...keys.filter((each) => weight(query, each) >= 0.005).map((each) =>
        create("li", { textContent: `${weight(query, each).toFixed(2)} on key ${each + 1}, “${token(each)}” (${back(query - each)})` })),
    );
  };

  // All heads as thumbnails: a pixel for each weight.
  const drawHeads = () => {
    const { layers, heads } = state.map;
    const step = size() + 3;
    const scale = Math.max(1, Math.ceil(800 / (heads * step)));
    canvas.width = heads * step * scale;
    canvas.height = layers * step * scale;
    const paper = canvas.getContext("2d");
    const ink = getComputedStyle(canvas).color;
    paper.fillStyle = ink;
    for (let layer = 0; layer < layers; layer += 1) {
      for (let head = 0; head < heads; head += 1) {
        const from = start(layer, head);
        for (let query = 0; query < size(); query += 1) {
          for (let key = 0; key <= query; key += 1) {
            paper.globalAlpha = Math.sqrt(weight(query, key, from));
            if (paper.globalAlpha > 0.1) paper.fillRect((head * step + key + 1) * scale, (layer * step + query + 1) * scale, scale, scale);
          }
        }
      }
    }
    paper.globalAlpha = 1;
    paper.strokeStyle = "#d9480f";
    paper.lineWidth = Math.max(2, scale);
    paper.strokeRect(state.head * step * scale + 1, state.layer * step * scale + 1, step * scale - 2, step * scale - 2);
  };

  const update = async () => {
    const map = offer();
    const bytes = await unpack(map);
    if (map !== offer()) return; // something else was chosen meanwhile
    const other = map.tokens.length !== size() || !state.bytes;
    Object.assign(state, { map, bytes, layer: Number(field.layer.value), head: Number(field.head.value) });
    if (other) state.query = Math.min(size() - 1, Math.max(0, map.prompt_tokens));
    const weights = Array.from({ length: state.query + 1 }, (_, key) => weight(state.query, key));
    if (other) state.key = weights.indexOf(Math.max(...weights));
    drawMap();
    drawHeads();
    say();
  };
  const move = (query, key) => {
    state.query = Math.max(0, Math.min(size() - 1, query));
    state.key = Math.max(0, Math.min(state.query, key));
    say();
  };
  const choose = (layer, head) => {
    field.layer.value = layer;
    field.head.value = head;
    return update();
  };

  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  holder.addEventListener("keydown", (event) => {
    const { query, key, layer, head, map } = state;
    const steps = { ArrowUp: [query - 1, key], ArrowDown: [query + 1, key], ArrowLeft: [query, key - 1], ArrowRight: [query, key + 1], Home: [query, 0], End: [query, query] };
    const turn = { PageUp: -1, PageDown: 1 }[event.key];
    if (!steps[event.key] && !turn) return;
    event.preventDefault();
    if (turn) {
      const count = map.layers * map.heads;
      const next = (layer * map.heads + head + turn + count) % count;
      choose(Math.floor(next / map.heads), next % map.heads);
    } else move(...steps[event.key]);
  });
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const query = Math.floor((event.clientY - box.top) / state.cell);
    const key = Math.floor((event.clientX - box.left - state.left) / state.cell);
    if (query >= 0 && query < size() && key >= 0 && key <= query) move(query, key);
  };
  holder.addEventListener("pointermove", point);
  holder.addEventListener("pointerdown", point);
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    const layer = Math.floor(((event.clientY - box.top) / box.height) * state.map.layers);
    const head = Math.floor(((event.clientX - box.left) / box.width) * state.map.heads);
    if (layer >= 0 && layer < state.map.layers && head >= 0 && head < state.map.heads) choose(layer, head);
  });
  document.getElementById("map-csv").addEventListener("click", () => {
    const rows = state.map.tokens.flatMap((_, query) =>
      Array.from({ length: query + 1 }, (__, key) => [query + 1, token(query), key + 1, token(key), weight(query, key).toFixed(4)]));
    save("attention-map.csv", "text/csv", asCsv(["query", "query_token", "key", "key_token", "weight"], rows));
  });
  // Thumbnails have their ink from the page.
  new MutationObserver(drawHeads).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawHeads);
  form.hidden = false;
  document.getElementById("map-view").hidden = false;
  await update();
}

await exploreAttention();
