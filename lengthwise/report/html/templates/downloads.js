// Every table as CSV, every figure as SVG, from what is in the page.
function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = create("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// A spreadsheet takes a text for a formula if it begins so; numbers may.
const harmless = (value) =>
  typeof value === "string" && /^[=+\-@\t\r\n]/.test(value) && !/^[-+\d.,%[\]()\s–]+$/.test(value) ? `'${value}` : String(value);
const field = (value) => {
  const text = value === null || value === undefined ? "" : harmless(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const asCsv = (columns, rows) => [columns, ...rows].map((row) => row.map(field).join(",") + "\n").join("");
const fileName = (words) => words.toLowerCase().replace(/[^a-z0-9.]+/g, "-").replace(/^-|-$/g, "");

// A table that has data behind it gives all of it; another one what it shows.
function tableAsCsv(table) {
  const { table: name, task } = table.dataset;
  if (!name) {
    const rows = all("tr", table).map((row) => all("th, td", row).map((cell) => cell.innerText.replace(/\s+/g, " ").trim()));
    return asCsv(rows[0], rows.slice(1));
  }
  const { columns, rows } = tables[name];
  if (task !== undefined) return asCsv(columns, rows.filter((row) => row[columns.indexOf("task")] === task));
  if (table.id === "run-table") {
    const shown = all("tbody tr", table).filter((row) => !row.hidden).map((row) => rows[row.dataset.run]);
    return asCsv(columns, shown);
  }
  return asCsv(columns, rows);
}

// On white paper with dark ink, whatever the colours of the page.
function figureAsSvg(figure) {
  const copy = figure.cloneNode(true);
  all(".cursor", copy).forEach((cursor) => cursor.remove());
  const { width, height } = figure.viewBox.baseVal;
  const attributes = { xmlns: "http://www.w3.org/2000/svg", width, height, color: "#1b1f24", "font-family": "system-ui, sans-serif" };
  for (const [name, value] of Object.entries(attributes)) copy.setAttribute(name, value);
  copy.removeAttribute("aria-hidden");
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width, height, fill: "#ffffff" })) paper.setAttribute(name, value);
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}

function offerDownloads(within = document) {
  const button = (label, about, action) => {
    const made = create("button", { type: "button", className: "download", textContent: label });
    made.append(create("span", { className: "hidden", textContent: ` of ${about}` }));
    made.addEventListener("click", action);
    return made;
  };
  for (const table of all("main table", within)) {
    const caption = table.caption.textContent;
    const name = table.dataset.table
      ? [table.dataset.table, table.dataset.task].filter(Boolean).join("-") : fileName(caption);
    const tool = button("CSV", caption, () => save(`${name}.csv`, "text/csv", tableAsCsv(table)));
    (table.closest(".scroll") ?? table).after(create("div", { className: "tools" }, tool));
  }
  for (const figure of all("svg[data-figure]", within)) {
    const { figure: name } = figure.dataset;
    const holder = figure.parentElement;
    const kind = holder.classList.contains("own") ? " own" : holder.classList.contains("both") ? "" : holder.classList.contains("alike") ? " alike" : "";
    const tool = button("SVG", name.replaceAll("-", " "), () => save(`${name}.svg`, "image/svg+xml", figureAsSvg(figure)));
    const tools = create("div", { className: `tools${kind}` }, tool);
    if (holder.closest("figure")) holder.closest("figure").append(tools);
    else holder.after(tools);
  }
  for (const heads of all("button[data-csv]", within)) {
    const { csv: name, task } = heads.dataset;
    const { columns, rows } = tables[name];
    heads.hidden = false;
    heads.addEventListener("click", () =>
      save(`${name}-${task}.csv`, "text/csv", asCsv(columns, rows.filter((row) => row[columns.indexOf("task")] === task))));
  }
}

function offerFailures() {
  const failures = document.getElementById("failure-csv");
  if (failures) {
    failures.hidden = false;
    failures.addEventListener("click", () => {
      const rows = failuresShown.map((entry) => failureColumns.map((name) => entry[name]));
      save("failures.csv", "text/csv", asCsv(failureColumns, rows));
    });
  }
}

offerDownloads();
offerFailures();
