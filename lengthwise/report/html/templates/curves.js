// The curves: show and hide encodings, change the axis, read numbers with the pointer or the arrow keys.
const tables = read("tables");

function offerCurves() {
  for (const button of all("[data-toggles], [data-toggles-kind]")) {
    const panels = button.closest(".controls").nextElementSibling;
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", shown);
      const { toggles, togglesKind } = button.dataset;
      const selector = toggles === undefined ? `.${togglesKind}` : `[data-encoding="${CSS.escape(toggles)}"]`;
      for (const part of all(selector, panels)) part.style.display = shown ? "" : "none";
    });
  }
  document.getElementById("axis")?.addEventListener("change", (event) => {
    document.querySelector(".panels").dataset.axis = event.target.value;
  });
}

function offerReadings() {
  const { columns, rows } = tables["by-length"];
  const column = Object.fromEntries(columns.map((name, i) => [name, i]));
  const byTask = Map.groupBy
    ? Map.groupBy(rows, (row) => row[column.task])
    : rows.reduce((found, row) => found.set(row[column.task], [...(found.get(row[column.task]) ?? []), row]), new Map());
  const tip = create("div", { className: "tip", hidden: true });
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  // Where the axes are in a drawing: see `LEFT`, `RIGHT`, `TOP`, `BOTTOM` and `WIDTH` in curves.py.
  const [left, right, top, bottom, width] = document.querySelector(".panels").dataset.axes.split(" ").map(Number);

  for (const plot of all(".plot")) {
    const own = byTask.get(plot.dataset.task);
    const lengths = [...new Set(own.map((row) => row[column.length]))].sort((a, b) => a - b);
    const [first, last] = plot.dataset.span.split(" ").map(Number);
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    plot.firstElementChild.append(cursor);
    let at = lengths.length - 1;

    const placeOf = (length) => left + ((length - first) / (last - first)) * (right - left);
    const describe = (row) => {
      const [mean, low, high, published] = ["mean", "low", "high", "published"].map((name) => row[column[name]]);
      const interval = low === null ? "" : ` (${low.toFixed(2)} – ${high.toFixed(2)})`;
      return [`${mean.toFixed(2)}${interval}`, published === null ? "" : published.toFixed(2)];
    };
    const show = (near) => {
      const length = lengths[at];
      const shown = own.filter((row) => row[column.length] === length);
      const place = placeOf(length);
      cursor.setAttribute("d", `M${place},${top}V${bottom}`);
      plot.setAttribute("aria-valuenow", length);
      const said = shown.map((row) => `${row[column.encoding]} ${describe(row)[0]}`).join(", ");
      plot.setAttribute("aria-valuetext", `length ${length}: ${said}`);
      if (!near) return;
      const published = shown.some((row) => row[column.published] !== null);
      const head = create("tr", {}, create("th", { textContent: `length ${length}` }), create("th", { textContent: "ours" }));
      if (published) head.append(create("th", { textContent: "published" }));
      const lines = shown.map((row) => {
        const [ours, theirs] = describe(row);
        const made = create("tr", {}, create("td", { textContent: row[column.encoding] }), create("td", { textContent: ours }));
        if (published) made.append(create("td", { textContent: theirs }));
        return made;
      });
      tip.replaceChildren(create("table", { role: "presentation" }, head, ...lines));
      tip.hidden = false;
      const box = plot.getBoundingClientRect();
      const x = box.left + (place / width) * box.width;
      const wide = tip.offsetWidth;
      tip.style.left = `${Math.max(4, Math.min(x + 12, document.documentElement.clientWidth - wide - 4)) + window.scrollX}px`;
      tip.style.top = `${box.bottom + window.scrollY - 8}px`;
    };
    const hide = () => {
      tip.hidden = true;
      cursor.removeAttribute("d");
    };
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * width;
      const gaps = lengths.map((length) => Math.abs(placeOf(length) - place));
      at = gaps.indexOf(Math.min(...gaps));
      show(true);
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("focus", () => plot.matches(":focus-visible") && show(true));
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step && event.key !== "Home" && event.key !== "End") return;
      event.preventDefault();
      at = event.key === "Home" ? 0 : event.key === "End" ? lengths.length - 1
        : Math.max(0, Math.min(lengths.length - 1, at + step));
      show(true);
    });
    plot.setAttribute("role", "slider");
    plot.tabIndex = 0;
    plot.setAttribute("aria-valuemin", lengths[0]);
    plot.setAttribute("aria-valuemax", lengths.at(-1));
    show(false);
    hide();
  }
}

offerCurves();
offerReadings();
