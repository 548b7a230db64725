// Draws the charts and lets the legend show and hide encodings in all of them.
const charts = JSON.parse(document.getElementById("charts").textContent);
const views = [];
for (const place of document.querySelectorAll("[data-chart]")) {
  const options = { renderer: "svg", actions: false };
  const { view } = await window.vegaEmbed(place, charts[place.dataset.chart], options);
  if (place.closest(".panel")) views.push(view);
}
const buttons = [...document.querySelectorAll("[data-encoding]")];
for (const button of buttons) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
    const pressed = buttons.filter((each) => each.getAttribute("aria-pressed") === "true");
    const shown = pressed.map((each) => each.dataset.encoding);
    for (const view of views) view.signal("shown", shown).runAsync();
  });
}
document.documentElement.dataset.drawn = "true";
