// The browsers of runs and of failures: filters, and what they leave.
const runs = { columns: tables.runs.columns, rows: tables.runs.rows };
const runColumn = Object.fromEntries(runs.columns.map((name, i) => [name, i]));
const chosenIn = (form) => Object.fromEntries(new FormData(form));
const matches = (wanted, value) => wanted === "" || wanted === String(value);

function browseRuns() {
  const form = document.getElementById("run-filters");
  const lines = all("#run-table tbody tr");
  const [descriptions, losses] = [read("descriptions"), read("losses")];
  const dialog = document.getElementById("run-dialog");
  for (const line of lines) {
    const name = line.querySelector("th");
    const words = name.lastChild;
    const button = create("button", { type: "button", className: "plain" });
    const [first, ...parts] = words.textContent.trim().split("/");  // a line may break after each
    button.append(first, ...parts.flatMap((part) => ["/", create("wbr"), part]));
    button.setAttribute("aria-haspopup", "dialog");
    button.addEventListener("click", () => {
      document.getElementById("run-title").textContent = button.textContent;
      const number = line.dataset.run;
      document.getElementById("run-card").replaceChildren(...runCard(descriptions[number], runs.rows[number], runColumn, losses[number]));
      dialog.showModal();
    });
    words.replaceWith(" ", button);
  }
  document.getElementById("run-close").addEventListener("click", () => dialog.close());
  const update = () => {
    const wanted = chosenIn(form);
    const words = wanted.words.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const line of lines) {
      const row = runs.rows[line.dataset.run];
      const text = line.textContent.toLowerCase();
      line.hidden = !(
        ["task", "encoding", "seed"].every((key) => matches(wanted[key], row[runColumn[key]])) &&
        matches(wanted.outcome, line.dataset.outcome) && words.every((word) => text.includes(word))
      );
      shown += !line.hidden;
    }
    document.getElementById("run-count").textContent =
      `${shown} of ${lines.length} runs. Choose a run to see its settings, versions and hardware.`;
  };
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
}

const failureColumns = ["task", "encoding", "seed", "length", "kind", "prompt", "target", "right", "instead"];
let failuresShown = [];

function browseFailures() {
  const form = document.getElementById("failure-filters");
  if (!form) return;
  const { examples, failures } = read("failure-data");
  const entries = failures.map(([run, length, example, right, instead, kind]) => {
    const [prompt, target] = examples[example];
    const [task, encoding, seed] = ["task", "encoding", "seed"].map((key) => runs.rows[run][runColumn[key]]);
    return { task, encoding, seed, length, kind, prompt, target, right, instead };
  });
  const list = document.getElementById("failure-list");
  const more = document.getElementById("failure-more");
  const page = 20;

  // What is right, then what is wrong in a mark; the end of a text has no symbol and gets a word.
  const answer = (label, right, wrong, rest) => create(
    "p", { className: "answer" }, create("span", { className: "label", textContent: label }), right,
    ...(wrong ? [] : [" "]), create("mark", { textContent: wrong || "end", className: wrong ? "" : "end" }), rest,
  );
  const card = (entry) => {
    const right = entry.target.slice(0, entry.right);
    const following = entry.target.slice(entry.right);
    const [, space, due, rest] = following.match(/^(\s*)(\S*)([\s\S]*)$/);
    return create(
      "article", { className: "failure" },
      create("p", { className: "about", textContent: `${entry.task} · ${entry.encoding} · seed ${entry.seed} · length ${entry.length} · ${entry.kind}` }),
      create("p", { className: "answer" }, create("span", { className: "label", textContent: "prompt" }), entry.prompt),
      answer("target", right + space, due, rest),
      answer("written", right + (right ? " " : ""), entry.instead, entry.instead ? " …" : ""),
    );
  };
  const extend = () => {
    const from = list.childElementCount;
    list.append(...failuresShown.slice(from, from + page).map(card));
    more.hidden = list.childElementCount >= failuresShown.length;
  };
  const update = () => {
    const wanted = chosenIn(form);
    const keys = Object.keys(wanted).filter((key) => wanted[key] !== "");
    failuresShown = entries.filter((entry) => keys.every((key) => String(entry[key]) === wanted[key]));
    document.getElementById("failure-count").textContent = `${failuresShown.length.toLocaleString("en")} of ${entries.length.toLocaleString("en")} failures.`;
    list.replaceChildren();
    extend();
  };
  more.addEventListener("click", extend);
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
}

browseRuns();
browseFailures();
