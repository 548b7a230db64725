// The findings of analyses: which task, and what of its heads, is shown. Tasks that were folded up are unfolded when chosen.
const folded = document.getElementById("why-packed") ? read("why-packed") : {};
const isFolded = (task) => Object.hasOwn(folded, task); // a task may be called like what every object has

const choosing = (select, update) => {
  select.addEventListener("input", update);
  select.form.addEventListener("submit", (event) => event.preventDefault());
  return update();
};

function chooseScores(block) {
  for (const select of all(".why-score", block)) {
    choosing(select, () => all(".why-map", block).forEach((map) => (map.hidden = map.dataset.score !== select.value)));
  }
}

async function unfold(task) {
  const packed = folded[task];
  delete folded[task]; // at once: it may be chosen again while this waits
  const { html, tables: more } = JSON.parse(new TextDecoder().decode(await inflated(packed)));
  for (const [name, { columns, rows }] of Object.entries(more)) (tables[name] ??= { columns, rows: [] }).rows.push(...rows);
  document.getElementById("why").insertAdjacentHTML("beforeend", html);
  const block = all(".why-task").at(-1);
  chooseScores(block);
  offerDownloads(block);
}

all(".why-task").forEach(chooseScores);
const whyTask = document.getElementById("why-task");
if (whyTask) {
  choosing(whyTask, async () => {
    if (isFolded(whyTask.value)) await unfold(whyTask.value);
    for (const block of all(".why-task")) block.hidden = block.dataset.task !== whyTask.value;
  });
}
