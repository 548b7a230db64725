// Visible text whose contrast to what is below it is less than 4.5: [text, class, ratio] of each.
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const linear = (share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((channel) => linear(channel / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(channels(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const found = [];
  let checked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (["SCRIPT", "STYLE", "OPTION", "NOSCRIPT"].includes(element.tagName)) continue;
    if (element.closest(".hidden, .skip")) continue;
    const style = getComputedStyle(element);
    const svg = element instanceof SVGElement;
    // The number in a cell of a heat map stands on the rectangle before it.
    const before = element.previousElementSibling;
    const inCell = svg && before?.tagName === "rect" && before.hasAttribute("rx");
    const place = svg ? element.closest("svg").parentElement : element;
    const below = inCell ? channels(getComputedStyle(before).fill) : ground(place);
    const ink = channels(svg ? style.fill : style.color);
    if (svg) ink[3] *= Number(style.fillOpacity);
    const [dark, light] = [luminance(over(ink, below)), luminance(below)].sort((a, b) => a - b);
    const ratio = (light + 0.05) / (dark + 0.05);
    checked += 1;
    if (ratio < 4.5) found.push([element.textContent.trim().slice(0, 40), element.getAttribute("class"), ratio]);
  }
  return checked > 10 ? found : [["nothing to read", "", 0]];
}
