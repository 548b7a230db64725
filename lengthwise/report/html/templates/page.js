// Turns the sections into tabs and offers a switch of colours. Without scripts everything is one long page.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

const create = (tag, properties = {}, ...children) => {
  const { dataset = {}, ...others } = properties;
  const made = Object.assign(document.createElement(tag), others);
  Object.assign(made.dataset, dataset);
  made.append(...children);
  return made;
};

// Bytes that were deflated and written as base64.
async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

function makeTabs() {
  const sections = all("main > section");
  const list = document.getElementById("sections");
  const tabs = sections.map((section) => {
    const link = list.querySelector(`a[href="#${section.id}"]`);
    const tab = create("button", { type: "button", id: `tab-${section.id}`, textContent: link.textContent });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", section.id);
    link.replaceWith(tab);
    tab.parentElement.setAttribute("role", "presentation");
    section.setAttribute("role", "tabpanel");
    section.setAttribute("aria-labelledby", tab.id);
    return tab;
  });
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "Sections");

  const select = (chosen, { focus = false, remember = true } = {}) => {
    sections.forEach((section, i) => {
      section.hidden = i !== chosen;
      tabs[i].setAttribute("aria-selected", i === chosen);
      tabs[i].tabIndex = i === chosen ? 0 : -1;
    });
    if (focus) tabs[chosen].focus();
    tabs[chosen].scrollIntoView({ block: "nearest", inline: "center" });
    if (remember) history.replaceState(null, "", `#${sections[chosen].id}`);
  };
  const moves = { ArrowRight: 1, ArrowLeft: -1 };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => {
      select(i);
      window.scrollTo({ top: Math.min(window.scrollY, list.closest("nav").offsetTop) });
    });
    tab.addEventListener("keydown", (event) => {
      const target = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1
        : event.key in moves ? (i + moves[event.key] + tabs.length) % tabs.length : null;
      if (target === null) return;
      event.preventDefault();
      select(target, { focus: true });
    });
  });
  const named = () => sections.findIndex((section) => `#${section.id}` === location.hash);
  window.addEventListener("hashchange", () => {
    if (named() < 0) return;
    select(named(), { remember: false });
    sections[named()].scrollIntoView();  // it was hidden when the browser looked for it
  });
  select(Math.max(0, named()), { remember: false });
}

function offerColours() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const remembered = (value) => {
    try {
      if (value) localStorage.setItem("lengthwise-colours", value);
      return localStorage.getItem("lengthwise-colours");
    } catch {
      return null; // a page from a file may have no storage
    }
  };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => button.setAttribute("aria-pressed", isDark());
  const earlier = remembered();
  if (earlier) root.dataset.theme = earlier;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remembered(root.dataset.theme);
    show();
  });
  system.addEventListener("change", show);
  button.hidden = false;
  show();
}

makeTabs();
offerColours();
