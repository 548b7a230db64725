// Sorting by any column, filters of rows and columns, and the way from a name to its card.
const board = document.getElementById("board");
const headings = all("thead th", board);
const lines = all("tbody tr:not(.group)", board);
const RISING = new Set(["method", "place", "mean rank", "cost"]); // least first
const label = (heading) => heading.dataset.label;
let sorted = { column: headings.findIndex((each) => each.textContent === "mean rank"), rising: true };

const valueIn = (line, column) => {
  const cell = line.cells[column];
  if (column === 0) return line.dataset.method.toLowerCase();
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
};

function sortBy(column, rising) {
  const compare = (a, b) => {
    const [first, second] = [valueIn(a, column), valueIn(b, column)];
    if (first === null || second === null) return (first === null) - (second === null); // the empty ones last
    return (first > second) - (first < second) ? ((first > second) - (first < second)) * (rising ? 1 : -1) : 0;
  };
  for (const body of board.tBodies) body.append(...[...body.rows].filter((row) => !row.classList.contains("group")).sort(compare));
  headings.forEach((heading, i) => {
    if (i === column) heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    else heading.removeAttribute("aria-sort");
  });
  sorted = { column, rising };
}

function offerSorting() {
  headings.forEach((heading, column) => {
    heading.dataset.label = heading.innerText.replace(/\s+/g, " ").trim();
    const button = create("button", { type: "button" }, ...heading.childNodes);
    button.setAttribute("aria-label", `${label(heading)}, sort`); // without the places where a name may break
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const again = sorted.column === column;
      sortBy(column, again ? !sorted.rising : RISING.has(label(heading)));
      tell();
    });
  });
  if (sorted.column >= 0) headings[sorted.column].setAttribute("aria-sort", "ascending");
}

const chosen = (form) => Object.fromEntries(new FormData(form));
const fits = (each, { kind, words }) =>
  (kind === "" || each.dataset.kinds.split(" ").includes(kind)) &&
  words.toLowerCase().split(/\s+/).every((word) => each.dataset.method.toLowerCase().includes(word));

function tell() {
  const count = (items) => items.filter((each) => !each.hidden).length;
  const methods = (among) => new Set(among.map((line) => line.dataset.method)).size; // one may have several lines
  const tasks = headings.filter((heading) => heading.dataset.family !== undefined);
  const order = sorted.column < 0 ? "" : `, sorted by ${label(headings[sorted.column])}, ${sorted.rising ? "least" : "greatest"} first`;
  const over = count(tasks) < tasks.length ? " Place, rank and mean are over all tasks." : "";
  document.getElementById("board-state").textContent =
    `${methods(lines.filter((line) => !line.hidden))} of ${methods(lines)} methods, ${count(tasks)} of ${tasks.length} tasks${order}.${over}`;
}

function offerFilters() {
  const form = document.getElementById("board-filters");
  const update = () => {
    const wanted = chosen(form);
    for (const line of lines) line.hidden = !fits(line, wanted);
    headings.forEach((heading, column) => {
      const { family } = heading.dataset;
      const hidden = family !== undefined && wanted.family !== "" && family !== wanted.family;
      for (const line of [headings[0].parentElement, ...lines]) line.cells[column].hidden = hidden;
    });
    for (const body of board.tBodies) {
      const group = body.querySelector(".group");
      if (group) group.hidden = ![...body.rows].some((row) => row !== group && !row.hidden);
    }
    tell();
  };
  const cards = all(".card");
  const cardForm = document.getElementById("card-filters");
  const updateCards = () => {
    const wanted = chosen(cardForm);
    for (const card of cards) card.hidden = !fits(card, wanted);
    document.getElementById("card-state").textContent = `${cards.filter((card) => !card.hidden).length} of ${cards.length} methods.`;
  };
  for (const [each, refresh] of [[form, update], [cardForm, updateCards]]) {
    each.hidden = false;
    each.addEventListener("input", refresh);
    each.addEventListener("submit", (event) => event.preventDefault());
  }
  for (const id of ["board-state", "card-state"]) document.getElementById(id).hidden = false;
  update();
  updateCards();
  return () => { cardForm.reset(); updateCards(); };
}

// A card is in a tab of its own: a link to it opens the tab first.
function openCards(showAll) {
  const open = () => {
    const card = /^#method-\d+$/.test(location.hash) && document.querySelector(location.hash);
    if (!card) return;
    const address = location.hash;
    showAll();
    document.getElementById("tab-methods").click();
    history.replaceState(null, "", address);
    card.scrollIntoView();
    card.focus({ preventScroll: true });
  };
  window.addEventListener("hashchange", open);
  open();
}

offerSorting();
openCards(offerFilters());
