// The members in their coalitions, and a what-if for other competition. The server computes all
// shapes, so that this picture is the one that its tests check; here they are only drawn.
"use strict";
(() => {
  const bench = document.getElementById("workbench");
  if (!bench) return;
  const began = performance.now();
  const COLOURS = ["#1f77b4", "#2ca02c", "#9467bd", "#d17a00", "#0f8a8a", "#c2517c", "#6b7a1a", "#8c564b"];
  const MANY = 30; // with more members, the coalitions are shown first
  const here = `/consortia/${bench.dataset.consortium}`;
  const number = bench.dataset.formation;
  const csrf = document.body.dataset.csrf;
  const element = (id) => document.getElementById(id);
  const svg = element("picture");
  let data;
  let shapes;
  const tried = new Map(); // "a|b" by position -> true if added, false if removed
  const key = (a, b) => (a < b ? `${a}|${b}` : `${b}|${a}`);
  const rounded = (value) => Math.abs(value).toPrecision(3);

  function made(parent, name, attributes, text) {
    const found = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [attribute, value] of Object.entries(attributes)) found.setAttribute(attribute, value);
    if (text !== undefined) found.textContent = text;
    parent.append(found);
    return found;
  }

  const path = (points) => points.map(([x, y], k) => `${k ? "L" : "M"}${x} ${y}`).join("");
  const region = (p) => shapes.regions.findIndex((one) => one.members.includes(p));
  const colour = (k) => (shapes.regions[k].together ? COLOURS[k % COLOURS.length] : "#7d8590");
  const titled = (k) => {
    const one = shapes.regions[k];
    const count = `${one.members.length} ${one.members.length === 1 ? "member" : "members"}`;
    return one.together ? `Coalition ${k + 1}: ${count}` : `Alone: ${count}`;
  };

  function words(p) {
    const home = shapes.regions[region(p)];
    const others = home.members.filter((other) => other !== p).map((other) => data.participants[other]);
    const name = data.participants[p];
    const gain = data.gains[name] === undefined ? "" : `, gain ${data.gains[name].toPrecision(3)}`;
    if (!home.together) return `${name}${gain}: alone`;
    const shown = others.slice(0, 12).join(", ") + (others.length > 12 ? ` and ${others.length - 12} more` : "");
    return `${name}${gain}: coalition ${region(p) + 1}, with ${shown}`;
  }

  function render(changes) {
    svg.replaceChildren();
    const { width, height, radius } = shapes;
    const margin = 24;
    svg.setAttribute("viewBox", `${-margin} ${-margin} ${width + 2 * margin} ${height + 2 * margin}`);
    const ends = made(made(svg, "defs", {}), "marker", {
      id: "arrow", viewBox: "0 0 8 8", refX: 8 + radius / 2, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto",
    });
    made(ends, "path", { d: "M0 0L8 4L0 8z", class: "arrow" });
    shapes.regions.forEach((one, k) => {
      const group = made(svg, "g", { class: one.together ? "region" : "region single", "data-region": k });
      made(group, "circle", { cx: one.x, cy: one.y, r: one.radius, fill: colour(k), stroke: colour(k) });
      made(group, "text", { x: one.x, y: one.y, class: "caption" }, titled(k));
      group.addEventListener("click", () => {
        if (svg.classList.contains("map")) showMembers(true, one);
      });
    });
    for (const line of shapes.benefit) {
      made(svg, "path", {
        d: path(line.points), class: `line benefit ${line.used ? "used" : "unused"}`, "marker-end": "url(#arrow)",
        "stroke-width": 0.7 + 2.6 * line.weight, "data-a": line.source, "data-b": line.target,
      });
    }
    for (const line of shapes.competition) {
      const pair = key(line.source, line.target);
      const group = made(svg, "g", {
        class: `line rival ${tried.has(pair) ? "tried" : ""}`, "data-a": line.source, "data-b": line.target,
      });
      made(group, "path", { d: path(line.points), class: "hit" });
      made(group, "path", { d: path(line.points), class: "dashes" });
      made(group, "title", {}, `${data.participants[line.source]} and ${data.participants[line.target]} compete`);
      if (number) group.addEventListener("click", () => change(line.source, line.target));
    }
    // Many lines are faint, until one points at a member.
    svg.classList.toggle("dense", shapes.benefit.length + shapes.competition.length > 80);
    shapes.members.forEach(([x, y], p) => member(p, x, y, radius, changes[data.participants[p]] || 0));
    fit();
  }

  function member(p, x, y, radius, change_) {
    const sense = change_ > 0 ? " better" : change_ < 0 ? " worse" : "";
    const group = made(svg, "g", {
      class: `member${sense}`, "data-member": p, role: "img", "aria-label": words(p),
      tabindex: data.participants.length > MANY ? -1 : 0,
    });
    made(group, "title", {}, words(p));
    made(group, "circle", { cx: x, cy: y, r: radius, fill: colour(region(p)) });
    const [text, u, v, turn] = shapes.labels[p];
    made(group, "text", { x: u, y: v, transform: `rotate(${turn} ${u} ${v})` }, text);
    group.addEventListener("pointerenter", () => mark(p));
    group.addEventListener("pointerleave", () => mark(null));
    group.addEventListener("focus", () => mark(p));
    group.addEventListener("blur", () => mark(null));
  }

  // Shows what one member is, and its lines before all others.
  function mark(p) {
    element("about").textContent = p === null ? "Point at a member to see its gain and its coalition." : words(p);
    svg.classList.toggle("marked", p !== null);
    for (const line of svg.querySelectorAll(".line"))
      line.classList.toggle("own", p !== null && (Number(line.dataset.a) === p || Number(line.dataset.b) === p));
    for (const one of svg.querySelectorAll(".member")) one.classList.toggle("own", Number(one.dataset.member) === p);
  }

  // Small pictures fill the frame; large ones keep letters that can be read, and the frame scrolls.
  function fit() {
    const frame = svg.parentElement;
    const wanted = shapes.width + 48;
    const whole = Math.min(frame.clientWidth / wanted, frame.clientHeight / (shapes.height + 48));
    const scale = svg.classList.contains("map") ? whole : Math.min(1.6, Math.max(0.85, whole));
    svg.setAttribute("width", Math.floor(wanted * scale));
    svg.setAttribute("height", Math.floor((shapes.height + 48) * scale));
    for (const one of svg.querySelectorAll(".caption")) one.style.fontSize = `${13 / scale}px`;
  }

  function showMembers(shown, around) {
    svg.classList.toggle("map", !shown);
    element("show-members").checked = shown;
    fit();
    const { x, y } = around || { x: shapes.width / 2, y: shapes.height / 2 };
    toMiddle(x, y);
  }

  function toMiddle(x, y) {
    const frame = svg.parentElement;
    const scale = svg.clientWidth / (shapes.width + 48);
    frame.scrollTo((x + 24) * scale - frame.clientWidth / 2, (y + 24) * scale - frame.clientHeight / 2);
  }

  function show() {
    svg.classList.toggle("no-used", !element("show-used").checked);
    svg.classList.toggle("no-unused", !element("show-unused").checked);
    svg.classList.toggle("no-rivals", !element("show-rivals").checked);
  }

  // Drawing a line from one member to another, by mouse or finger.
  function reach() {
    let from = null;
    let line = null;
    const spot = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const nearest = ({ x, y }) => {
      let best = null;
      shapes.members.forEach(([u, v], p) => {
        const far = Math.hypot(u - x, v - y);
        if (far < 3 * shapes.radius && (best === null || far < best.far)) best = { p, far };
      });
      return best === null ? null : best.p;
    };
    svg.addEventListener("pointerdown", (event) => {
      const group = event.target.closest(".member");
      if (!group || event.button) return;
      event.preventDefault();
      from = Number(group.dataset.member);
      svg.setPointerCapture(event.pointerId);
      const [x, y] = shapes.members[from];
      line = made(svg, "line", { x1: x, y1: y, x2: x, y2: y, class: "reaching" });
    });
    svg.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const { x, y } = spot(event);
      line.setAttribute("x2", x);
      line.setAttribute("y2", y);
    });
    const end = (event) => {
      if (from === null) return;
      const start = from;
      const to = event.type === "pointerup" ? nearest(spot(event)) : null;
      from = null;
      line.remove();
      if (to !== null && to !== start) change(start, to);
      else mark(start);
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
  }

  function change(a, b) {
    if (a === b) {
      element("whatif-result").textContent = "Choose two different members.";
      return;
    }
    const pair = key(a, b);
    if (tried.has(pair)) tried.delete(pair);
    else tried.set(pair, !data.rivals.has(pair));
    listChanges();
    ask();
  }

  function listChanges() {
    const list = element("whatif-changes");
    list.replaceChildren();
    for (const [pair, added] of tried) {
      const [a, b] = pair.split("|").map(Number);
      const names = `${data.participants[a]} and ${data.participants[b]}`;
      const item = document.createElement("li");
      const told = document.createElement("span");
      told.textContent = added ? `${names} compete` : `${names} do not compete`;
      const undo = document.createElement("button");
      undo.type = "button";
      undo.className = "plain";
      undo.textContent = "Undo";
      undo.setAttribute("aria-label", `Undo: ${told.textContent}`);
      undo.addEventListener("click", () => change(a, b));
      item.append(told, undo);
      list.append(item);
    }
    element("whatif-reset").hidden = tried.size === 0;
  }

  let asked = 0;
  async function ask() {
    const turn = ++asked;
    const result = element("whatif-result");
    if (!tried.size) {
      shapes = data.scene;
      render({});
      result.replaceChildren();
      return;
    }
    const pairs = (wanted) =>
      [...tried]
        .filter(([, added]) => added === wanted)
        .map(([pair]) => pair.split("|").map((p) => data.participants[p]));
    const response = await fetch(`/api${here}/formations/${number}/what-if`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": csrf },
      body: JSON.stringify({ add: pairs(true), remove: pairs(false), scene: true }),
    });
    const answer = await response.json();
    if (turn !== asked) return; // another question was asked meanwhile
    if (!response.ok) {
      result.textContent = typeof answer.detail === "string" ? answer.detail : "That did not work.";
      return;
    }
    shapes = answer.scene;
    render(answer.changes);
    tell(answer);
  }

  function tell(answer) {
    const paragraph = document.createElement("p");
    const total = answer.welfare_change;
    paragraph.textContent =
      (answer.moved.length ? `${answer.moved.join(", ")} would move. ` : "No member would move. ") +
      (Math.abs(total) < 1e-9
        ? "The total benefit would not change."
        : `The total benefit would ${total > 0 ? "rise" : "fall"} by ${rounded(total)}.`);
    const list = document.createElement("ul");
    const changes = Object.entries(answer.changes).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    for (const [name, value] of changes.slice(0, 12)) {
      const item = document.createElement("li");
      item.textContent = `${name} ${value > 0 ? "gains" : "loses"} ${rounded(value)}`;
      item.className = value > 0 ? "better" : "worse";
      list.append(item);
    }
    if (changes.length > 12) {
      const item = document.createElement("li");
      item.textContent = `and ${changes.length - 12} others`;
      list.append(item);
    }
    element("whatif-result").replaceChildren(paragraph, list);
  }

  function find() {
    const wanted = element("find").value.trim().toLowerCase();
    const names = data.participants.map((name) => name.toLowerCase());
    let p = names.indexOf(wanted);
    if (p < 0 && wanted) p = names.findIndex((name) => name.includes(wanted));
    if (p < 0) {
      mark(null);
      if (wanted) element("about").textContent = "There is no such member.";
      return;
    }
    showMembers(true);
    mark(p);
    toMiddle(...shapes.members[p]);
  }

  async function why() {
    const [one, other] = [element("whatif-a").value, element("whatif-b").value];
    const told = element("why-result");
    if (one === other) {
      told.textContent = "Choose two different members.";
      return;
    }
    const asking = new URLSearchParams({ member: one, other });
    const response = await fetch(`/api${here}/formations/${number}/explanations?${asking}`);
    const answer = await response.json();
    told.textContent = response.ok ? answer[0].sentence : "That did not work.";
  }

  for (const id of ["show-used", "show-unused", "show-rivals"]) element(id).addEventListener("change", show);
  element("show-members").addEventListener("change", (event) => showMembers(event.target.checked));
  element("find").addEventListener("input", find);
  if (number) {
    element("whatif-change").addEventListener("click", () => {
      const place = (id) => data.participants.indexOf(element(id).value);
      change(place("whatif-a"), place("whatif-b"));
    });
    element("why").addEventListener("click", why);
    element("whatif-reset").addEventListener("click", () => {
      tried.clear();
      listChanges();
      ask();
    });
    reach();
  }

  fetch(`${here}/picture.json`)
    .then((response) => response.json())
    .then((found) => {
      data = found;
      data.rivals = new Set(found.scene.competition.map((line) => key(line.source, line.target)));
      shapes = found.scene;
      const many = found.participants.length > MANY;
      svg.classList.toggle("map", many);
      element("show-members").checked = !many;
      element("members-switch").hidden = !many;
      show();
      render({});
      showMembers(!many);
      mark(null);
      new ResizeObserver(fit).observe(svg.parentElement);
      requestAnimationFrame(() => (bench.dataset.ready = String(Math.round(performance.now() - began))));
    });
})();
