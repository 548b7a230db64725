// A figure fills the window when it is asked to.
function offerEnlarging(within = document) {
  const dialog = document.getElementById("figure-dialog");
  const holder = document.getElementById("figure-large");
  for (const figure of all("svg[data-figure]", within)) {
    const name = figure.closest("[aria-label]")?.getAttribute("aria-label") ?? figure.dataset.figure;
    const open = () => {
      const copy = figure.cloneNode(true);
      all(".cursor", copy).forEach((cursor) => cursor.remove());
      copy.removeAttribute("width");
      copy.removeAttribute("height");
      holder.replaceChildren(copy);
      dialog.setAttribute("aria-label", name);
      dialog.showModal();
    };
    const button = create("button", { type: "button", className: "enlarge", textContent: "Enlarge" });
    button.append(create("span", { className: "hidden", textContent: ` ${figure.dataset.figure.replaceAll("-", " ")}` }));
    button.addEventListener("click", open);
    figure.addEventListener("click", open);
    figure.classList.add("enlarges");
    const own = figure.parentElement.closest("figure") ?? figure.parentElement.parentElement;
    const tools = figure.parentElement.nextElementSibling?.classList.contains("tools")
      ? figure.parentElement.nextElementSibling : own.querySelector(":scope > .tools");
    tools?.append(button);
  }
}

const largeFigure = document.getElementById("figure-dialog");
document.getElementById("figure-close").addEventListener("click", () => largeFigure.close());
largeFigure.addEventListener("click", (event) => event.target === largeFigure && largeFigure.close());
offerEnlarging();
