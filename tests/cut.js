// Words of figures that reach beyond their figure, where they are cut off.
() => [...document.querySelectorAll("svg[data-figure]")].filter((figure) => figure.checkVisibility()).flatMap((figure) => {
  const frame = figure.getBoundingClientRect();
  return [...figure.querySelectorAll("text")]
    .map((words) => [words.textContent, words.getBoundingClientRect()])
    .filter(([, box]) => box.width &&
      (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1))
    .map(([words]) => `${figure.dataset.figure}: ${words}`);
})
