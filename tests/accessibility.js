// What somebody who cannot see the page or use a pointer would miss, in words.
() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const problems = [];
  const require = (wrong, what) => wrong.forEach((each) => problems.push(`${what}: ${each.outerHTML.slice(0, 120)}`));
  require(all("main table").filter((table) => !table.caption?.textContent.trim()), "a table without a caption");
  require(all("main th").filter((cell) => !cell.scope), "a heading cell without a scope");
  require(all("button").filter((button) => !button.textContent.trim()), "a button without a name");
  require(all("select, input").filter((field) => !field.labels.length), "a field without a label");
  require(all("svg[data-figure]").filter((figure) => !figure.parentElement.ariaLabel), "a figure without words");
  require(all("figure").filter((figure) => !figure.querySelector("figcaption")), "a figure without a caption");
  require(all(".scroll").filter((region) => region.tabIndex !== 0 || !region.ariaLabel), "a region without keys");
  for (const landmark of ["header", "nav[aria-label]", "main", "footer"]) {
    if (all(landmark).length !== 1) problems.push(`not one ${landmark}`);
  }
  const levels = all("header :is(h1,h2,h3,h4), main :is(h1,h2,h3,h4)").map((heading) => Number(heading.tagName[1]));
  if (levels[0] !== 1 || levels.filter((level) => level === 1).length !== 1) problems.push("not one first heading");
  levels.forEach((level, i) => i && level - levels[i - 1] > 1 && problems.push(`heading ${i} skips a level`));
  const names = all("[id]").map((each) => each.id);
  if (new Set(names).size !== names.length) problems.push("two elements with one id");
  for (const attribute of ["aria-labelledby", "aria-controls"]) {
    require(all(`[${attribute}]`).filter((each) => !names.includes(each.getAttribute(attribute))), `${attribute} to nothing`);
  }
  return problems;
}
