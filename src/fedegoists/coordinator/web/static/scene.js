// Draws the shapes that the server computed, as SVG. Nothing is laid out here, so that the picture
// is the one that the server's tests check.
"use strict";

const COALITION_COLOURS = [
  "#1f77b4", "#2ca02c", "#9467bd", "#d17a00", "#0f8a8a", "#c2517c", "#6b7a1a", "#8c564b",
];
const SCENE_MARGIN = 24;

function svgElement(parent, name, attributes, text) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) found.setAttribute(attribute, value);
  if (text !== undefined) found.textContent = text;
  parent.append(found);
  return found;
}

function regionColour(shapes, k) {
  return shapes.regions[k].together ? COALITION_COLOURS[k % COALITION_COLOURS.length] : "#7d8590";
}

// Draws regions, lines and members. `about` has words for members, pairs of competitors and regions.
function drawScene(svg, shapes, about) {
  svg.replaceChildren();
  const { width, height, radius } = shapes;
  const margin = SCENE_MARGIN;
  svg.setAttribute("viewBox", `${-margin} ${-margin} ${width + 2 * margin} ${height + 2 * margin}`);
  const ends = svgElement(svgElement(svg, "defs", {}), "marker", {
    id: "arrow", viewBox: "0 0 8 8", refX: 8 + radius / 2, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto",
  });
  svgElement(ends, "path", { d: "M0 0L8 4L0 8z", class: "arrow" });
  const path = (points) => points.map(([x, y], k) => `${k ? "L" : "M"}${x} ${y}`).join("");
  shapes.regions.forEach((one, k) => {
    const colour = regionColour(shapes, k);
    const group = svgElement(svg, "g", { class: one.together ? "region" : "region single", "data-region": k });
    svgElement(group, "circle", { cx: one.x, cy: one.y, r: one.radius, fill: colour, stroke: colour });
    const caption = svgElement(group, "text", { x: one.x, y: one.y, class: "caption" });
    const [first, second] = about.region(k).split(": ");
    svgElement(caption, "tspan", { x: one.x, dy: "-0.55em" }, first);
    svgElement(caption, "tspan", { x: one.x, dy: "1.2em" }, second);
  });
  for (const line of shapes.benefit) {
    svgElement(svg, "path", {
      d: path(line.points), class: `line benefit ${line.used ? "used" : "unused"}`, "marker-end": "url(#arrow)",
      "stroke-width": 0.7 + 2.6 * line.weight, "data-a": line.source, "data-b": line.target,
    });
  }
  for (const line of shapes.competition) {
    const group = svgElement(svg, "g", { class: "line rival", "data-a": line.source, "data-b": line.target });
    svgElement(group, "path", { d: path(line.points), class: "hit" });
    svgElement(group, "path", { d: path(line.points), class: "dashes" });
    svgElement(group, "title", {}, about.pair(line.source, line.target));
  }
  // Many lines are faint, until one points at a member.
  svg.classList.toggle("dense", shapes.benefit.length + shapes.competition.length > 80);
  shapes.regions.forEach((one, k) => {
    for (const p of one.members) drawMember(svg, shapes, p, regionColour(shapes, k), about.member(p));
  });
  keepRoom(svg);
}

function drawMember(svg, shapes, p, colour, words) {
  const [x, y] = shapes.members[p];
  const group = svgElement(svg, "g", { class: "member", "data-member": p, role: "img", "aria-label": words });
  svgElement(group, "title", {}, words);
  svgElement(group, "circle", { cx: x, cy: y, r: shapes.radius, fill: colour });
  const [text, u, v, turn, room] = shapes.labels[p];
  svgElement(group, "text", { x: u, y: v, transform: `rotate(${turn} ${u} ${v})`, "data-room": room }, text);
}

// Letters that are wider than the server expected are set closer. All are measured before any is
// changed, as the browser would lay out the picture again for each.
function keepRoom(svg) {
  const labels = [...svg.querySelectorAll(".member text")];
  const lengths = labels.map((label) => label.getComputedTextLength());
  labels.forEach((label, k) => {
    if (lengths[k] <= Number(label.dataset.room)) return;
    label.setAttribute("textLength", label.dataset.room);
    label.setAttribute("lengthAdjust", "spacingAndGlyphs");
  });
}

// The scale at which the whole picture fits into its frame.
function wholeScale(svg, shapes) {
  const frame = svg.parentElement;
  const [wide, high] = [shapes.width + 2 * SCENE_MARGIN, shapes.height + 2 * SCENE_MARGIN];
  return Math.min(frame.clientWidth / wide, frame.clientHeight / high);
}

// Sets the size of the picture. Small ones fill the frame; large ones keep letters that can be read,
// and the frame scrolls. A map of the coalitions always fits.
function fitScene(svg, shapes, map) {
  const [wide, high] = [shapes.width + 2 * SCENE_MARGIN, shapes.height + 2 * SCENE_MARGIN];
  const whole = wholeScale(svg, shapes);
  const scale = map ? whole : Math.min(1.6, Math.max(0.78, whole));
  svg.setAttribute("width", Math.floor(wide * scale));
  svg.setAttribute("height", Math.floor(high * scale));
  shapes.regions.forEach((one, k) => {
    // As large as the disc has room for; in a tiny one, only its number.
    const letters = Math.min(14, 0.27 * one.radius * scale);
    const caption = svg.querySelector(`[data-region="${k}"] .caption`);
    const [first, second] = caption.children;
    caption.setAttribute("font-size", Math.max(letters, 11) / scale);
    const tiny = letters < 9;
    first.textContent = tiny ? "" : first.dataset.words || (first.dataset.words = first.textContent);
    second.dataset.words ||= second.textContent;
    second.textContent = tiny ? String(one.members.length) : second.dataset.words;
    second.setAttribute("dy", tiny ? "0" : "1.2em");
  });
}

// The picture as a file: colours and fonts that the page's style gives are written into it.
function sceneFile(svg) {
  const copy = svg.cloneNode(true);
  const drawn = [svg, ...svg.querySelectorAll("*")];
  const NAMES = [
    "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-family",
    "font-size", "font-weight", "text-anchor", "dominant-baseline", "display", "paint-order",
  ];
  [copy, ...copy.querySelectorAll("*")].forEach((element, k) => {
    const style = getComputedStyle(drawn[k]);
    for (const name of NAMES) element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
    element.removeAttribute("tabindex");
  });
  const [x, y, width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const fill = getComputedStyle(svg.parentElement).backgroundColor;
  const back = svgElement(copy, "rect", { x, y, width, height, fill });
  copy.prepend(back);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return new XMLSerializer().serializeToString(copy);
}

// The same as an image of points, two to a unit; large ones have fewer.
async function sceneImage(svg) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const scale = Math.min(2, 8000 / Math.max(width, height));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(sceneFile(svg))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
