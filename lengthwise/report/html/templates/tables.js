// Tables are sorted by a column when its heading is pressed: up, down, and as they were.
const numberIn = (cell) => {
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const found = cell.textContent.replaceAll(",", "").replaceAll("−", "-").match(/[-+]?\d*\.?\d+(e[-+]?\d+)?/i);
  return found ? Number(found[0]) : NaN;
};

function sortable(table) {
  const bodies = [...table.tBodies];
  // The order of groups, and of lengths below and above the end of training, says something itself.
  return table.tHead && bodies.length === 1 && bodies[0].rows.length > 2 && !table.querySelector(".group, .boundary");
}

function offerSorting(within = document) {
  for (const table of all("main table", within).filter(sortable)) {
    const [body] = table.tBodies;
    const before = [...body.rows];
    const headings = [...table.tHead.rows[0].cells].filter((cell) => cell.tagName === "TH");
    headings.forEach((heading) => {
      const column = heading.cellIndex;
      const button = create("button", { type: "button", className: "sorts" });
      button.append(...heading.childNodes);
      heading.append(button);
      heading.setAttribute("aria-sort", "none");
      const isNumber = heading.classList.contains("number");
      const orders = isNumber ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
      button.addEventListener("click", () => {
        const order = orders[(orders.indexOf(heading.getAttribute("aria-sort")) + 1) % 3];
        for (const other of headings) other.setAttribute("aria-sort", other === heading ? order : "none");
        const sign = order === "descending" ? -1 : 1;
        const compare = (a, b) => {
          const [first, second] = [a.cells[column], b.cells[column]];
          if (!isNumber) return sign * first.textContent.trim().localeCompare(second.textContent.trim(), "en", { numeric: true });
          const [one, other] = [numberIn(first), numberIn(second)];
          if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other); // what is missing comes last
          return sign * (one - other);
        };
        body.append(...(order === "none" ? before : [...body.rows].sort(compare)));
      });
    });
  }
}

offerSorting();
