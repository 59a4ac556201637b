// The members as a graph in their coalitions, and a what-if for other competition.
"use strict";
(() => {
  const bench = document.getElementById("workbench");
  if (!bench) return;
  const began = performance.now();
  const COLOURS = ["#1f77b4", "#2ca02c", "#9467bd", "#d17a00", "#0f8a8a", "#c2517c", "#6b7a1a", "#8c564b"];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const here = `/consortia/${bench.dataset.consortium}`;
  const number = bench.dataset.formation;
  const csrf = document.body.dataset.csrf;
  const element = (id) => document.getElementById(id);
  let cy;
  let data;
  let coalitions;
  const tried = new Map(); // "a|b" by position -> true if added, false if removed

  const key = (a, b) => (a < b ? `${a}|${b}` : `${b}|${a}`);
  const home = () => {
    const found = [];
    coalitions.forEach((group, k) => group.forEach((p) => (found[p] = k)));
    return found;
  };

  // Layout: a circle for each coalition, the largest in the middle, the others around it.
  function places(groups) {
    const order = groups.map((group, k) => [k, group.length]).sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    const radius = (size) => (size === 1 ? 26 : Math.max(48, (size * 52) / (2 * Math.PI))) + 30;
    const centres = [];
    const put = [];
    for (const [k, size] of order) {
      const r = radius(size);
      let spot = { x: 0, y: 0 };
      for (let step = 0; step < 6000; step++) {
        const angle = step * 0.35;
        const far = step * 2.2;
        spot = { x: far * Math.cos(angle) * 1.25, y: far * Math.sin(angle) };
        if (put.every((o) => Math.hypot(o.x - spot.x, o.y - spot.y) > o.r + r)) break;
      }
      put.push({ ...spot, r });
      centres[k] = { ...spot, r };
    }
    const found = [];
    groups.forEach((group, k) => {
      const { x, y, r } = centres[k];
      group.forEach((p, i) => {
        const angle = (2 * Math.PI * i) / group.length - Math.PI / 2;
        const out = group.length === 1 ? 0 : r - 30;
        found[p] = { x: x + out * Math.cos(angle), y: y + out * Math.sin(angle) };
      });
    });
    return found;
  }

  function competes(a, b) {
    const change = tried.get(key(a, b));
    return change === undefined ? data.rivals.has(key(a, b)) : change;
  }

  function elements() {
    const many = isLarge();
    const where = places(coalitions);
    const at = home();
    const list = coalitions.map((group, k) => ({
      data: { id: `c${k}`, colour: COLOURS[k % COLOURS.length] },
      classes: group.length > 1 ? "coalition" : "coalition single",
      selectable: false,
      grabbable: false,
    }));
    data.participants.forEach((name, p) =>
      list.push({
        data: { id: `m${p}`, label: name, parent: `c${at[p]}`, colour: COLOURS[at[p] % COLOURS.length] },
        position: where[p],
        classes: many ? "member small" : "member",
        grabbable: false,
      }),
    );
    if (!many) {
      data.benefit.forEach(([a, b, weight], k) =>
        list.push({
          data: { id: `b${k}`, source: `m${a}`, target: `m${b}`, strength: weight / data.heaviest },
          classes: `benefit ${at[a] === at[b] ? "used" : "unused"}`,
          selectable: false,
        }),
      );
    }
    data.competition.forEach(([a, b]) => list.push(rival(a, b)));
    return list;
  }

  const rival = (a, b, more = "") => ({
    data: { id: `r${key(a, b)}`, source: `m${a}`, target: `m${b}` },
    classes: `rival ${isLarge() ? "faint" : ""} ${more}`,
  });

  // Thousands of benefits are plain lines on a canvas behind the graph: as edges they take seconds.
  const isLarge = () => data.participants.length > 30;
  function paintLines() {
    const canvas = element("lines");
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const pen = canvas.getContext("2d");
    const { x, y } = cy.pan();
    const zoom = cy.zoom();
    pen.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * x, ratio * y);
    const at = home();
    const spots = data.participants.map((name, p) => cy.$id(`m${p}`).position());
    const WIDTHS = 4; // lines of about the same weight are drawn in one stroke
    for (const used of [false, true]) {
      if (!element(used ? "show-used" : "show-unused").checked) continue;
      pen.strokeStyle = style(used ? "--accent" : "--quiet");
      pen.globalAlpha = used ? 0.5 : 0.1;
      for (let level = 0; level < WIDTHS; level++) {
        pen.lineWidth = 0.5 + 0.7 * level;
        pen.beginPath();
        for (const [a, b, weight] of data.benefit) {
          const share = weight / data.heaviest;
          if (Math.min(WIDTHS - 1, Math.floor(share * WIDTHS)) !== level) continue;
          if ((at[a] === at[b]) !== used) continue;
          pen.moveTo(spots[a].x, spots[a].y);
          pen.lineTo(spots[b].x, spots[b].y);
        }
        pen.stroke();
      }
    }
  }
  let painting = false;
  function paintSoon() {
    if (painting || !isLarge()) return;
    painting = true;
    requestAnimationFrame(() => {
      painting = false;
      paintLines();
    });
  }

  function draw() {
    const text = style("--text");
    cy = window.cytoscape({
      container: element("picture"),
      elements: elements(),
      layout: { name: "preset", fit: true, padding: 24 },
      minZoom: 0.1,
      maxZoom: 3,
      boxSelectionEnabled: false,
      style: [
        { selector: ".coalition", style: { shape: "round-rectangle", "background-color": "data(colour)", "background-opacity": 0.13, "border-color": "data(colour)", "border-width": 1.5, padding: 16, events: "no" } },
        { selector: ".single", style: { "background-opacity": 0, "border-width": 0 } },
        { selector: ".member", style: { label: "data(label)", "background-color": "data(colour)", width: 30, height: 30, color: text, "font-size": 15, "text-valign": "bottom", "text-margin-y": 3, "text-outline-color": style("--panel"), "text-outline-width": 2 } },
        { selector: ".small", style: { width: 22, height: 22, "font-size": 12, "min-zoomed-font-size": 7 } },
        { selector: ".benefit", style: { width: "mapData(strength, 0, 1, 0.6, 4)", "overlay-opacity": 0, events: "no", "curve-style": "bezier", "target-arrow-shape": "triangle", "arrow-scale": 0.8 } },
        { selector: ".used", style: { "line-color": style("--accent"), "target-arrow-color": style("--accent"), opacity: 0.55 } },
        { selector: ".unused", style: { "line-color": style("--quiet"), "target-arrow-color": style("--quiet"), opacity: 0.22 } },
        { selector: ".rival", style: { "line-color": style("--worse"), "line-style": "dashed", width: 2.5, "curve-style": "straight", opacity: 0.85 } },
        { selector: ".faint", style: { width: 1.2, opacity: 0.3 } },
        { selector: ".rival.tried", style: { width: 4, opacity: 1 } },
        { selector: ".ghost", style: { width: 1, height: 1, opacity: 0, events: "no" } },
        { selector: ".reaching", style: { "line-color": style("--worse"), width: 3, "curve-style": "straight", events: "no" } },
        { selector: ".better", style: { "border-width": 5, "border-color": style("--better") } },
        { selector: ".worse", style: { "border-width": 5, "border-color": style("--worse") } },
        { selector: ".hidden", style: { display: "none" } },
      ],
    });
    show();
    if (isLarge()) paintLines();
    cy.on("pan zoom resize position", paintSoon);
    cy.one("render", () => {
      bench.dataset.ready = String(Math.round(performance.now() - began));
    });
    new ResizeObserver(() => {
      cy.resize();
      cy.fit(undefined, 24);
    }).observe(element("picture"));
    if (number) reach();
  }

  function show() {
    cy.batch(() => {
      cy.$(".used").toggleClass("hidden", !element("show-used").checked);
      cy.$(".unused").toggleClass("hidden", !element("show-unused").checked);
      cy.$(".rival").toggleClass("hidden", !element("show-rivals").checked);
    });
    paintSoon();
  }

  // Drawing a line from one member to another, by mouse or finger.
  function reach() {
    let from = null;
    const nearest = (spot) => {
      let best = null;
      cy.$(".member").forEach((node) => {
        const place = node.position();
        const far = Math.hypot(place.x - spot.x, place.y - spot.y);
        if (far < 34 && (best === null || far < best.far)) best = { node, far };
      });
      return best && best.node;
    };
    cy.on("tapstart", ".member", (event) => {
      from = event.target;
      cy.userPanningEnabled(false);
      cy.add([
        { data: { id: "ghost" }, position: { ...event.position }, classes: "ghost" },
        { data: { id: "reaching", source: from.id(), target: "ghost" }, classes: "reaching" },
      ]);
    });
    cy.on("tapdrag", (event) => {
      if (from) cy.$("#ghost").position({ ...event.position });
    });
    cy.on("tapend", (event) => {
      if (!from) return;
      const to = nearest(event.position);
      const start = from;
      from = null;
      cy.userPanningEnabled(true);
      cy.$("#reaching, #ghost").remove();
      if (to && to.id() !== start.id()) change(Number(start.id().slice(1)), Number(to.id().slice(1)));
    });
    cy.on("tap", ".rival", (event) => {
      const [a, b] = event.target.id().slice(1).split("|").map(Number);
      change(a, b);
    });
  }

  function change(a, b) {
    if (a === b) {
      element("whatif-result").textContent = "Choose two different members.";
      return;
    }
    const pair = key(a, b);
    if (tried.has(pair)) tried.delete(pair);
    else tried.set(pair, !data.rivals.has(pair));
    cy.$id(`r${pair}`).remove();
    if (competes(a, b)) cy.add(rival(a, b, tried.has(pair) ? "tried" : ""));
    show();
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
      const words = document.createElement("span");
      words.textContent = added ? `${names} compete` : `${names} do not compete`;
      const undo = document.createElement("button");
      undo.type = "button";
      undo.className = "plain";
      undo.textContent = "Undo";
      undo.setAttribute("aria-label", `Undo: ${words.textContent}`);
      undo.addEventListener("click", () => change(a, b));
      item.append(words, undo);
      list.append(item);
    }
    element("whatif-reset").hidden = tried.size === 0;
  }

  let asked = 0;
  async function ask() {
    const turn = ++asked;
    const result = element("whatif-result");
    if (!tried.size) {
      arrange(data.coalitions, {});
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
      body: JSON.stringify({ add: pairs(true), remove: pairs(false) }),
    });
    const answer = await response.json();
    if (turn !== asked) return; // another question was asked meanwhile
    if (!response.ok) {
      result.textContent = typeof answer.detail === "string" ? answer.detail : "That did not work.";
      return;
    }
    const place = new Map(data.participants.map((name, p) => [name, p]));
    arrange(answer.coalitions.map((group) => group.map((name) => place.get(name))), answer.changes);
    tell(answer);
  }

  function tell(answer) {
    const rounded = (value) => Math.abs(value).toPrecision(3);
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

  function arrange(groups, changes) {
    coalitions = groups;
    const where = places(groups);
    const at = home();
    cy.batch(() => {
      while (cy.$(".coalition").length < groups.length) {
        const k = cy.$(".coalition").length;
        cy.add({ data: { id: `c${k}`, colour: COLOURS[k % COLOURS.length] }, classes: "coalition", selectable: false, grabbable: false });
      }
      data.participants.forEach((name, p) => {
        const node = cy.$id(`m${p}`);
        if (node.parent().id() !== `c${at[p]}`) node.move({ parent: `c${at[p]}` });
      });
      data.participants.forEach((name, p) => {
        const node = cy.$id(`m${p}`);
        node.data("colour", COLOURS[at[p] % COLOURS.length]);
        node.position(where[p]);
        node.toggleClass("better", (changes[name] || 0) > 0);
        node.toggleClass("worse", (changes[name] || 0) < 0);
      });
      groups.forEach((group, k) => cy.$id(`c${k}`).toggleClass("single", group.length === 1));
      cy.$(".coalition").forEach((node) => node.toggleClass("hidden", node.children().empty()));
      if (isLarge()) return;
      data.benefit.forEach(([a, b], k) => {
        const edge = cy.$id(`b${k}`);
        const used = at[a] === at[b];
        edge.toggleClass("used", used);
        edge.toggleClass("unused", !used);
      });
    });
    show();
    cy.fit(undefined, 24);
  }

  for (const id of ["show-used", "show-unused", "show-rivals"]) {
    element(id).addEventListener("change", show);
  }
  if (number) {
    element("whatif-change").addEventListener("click", () => {
      const place = (id) => data.participants.indexOf(element(id).value);
      change(place("whatif-a"), place("whatif-b"));
    });
    element("why").addEventListener("click", async () => {
      const [one, other] = [element("whatif-a").value, element("whatif-b").value];
      const told = element("why-result");
      if (one === other) {
        told.textContent = "Choose two different members.";
        return;
      }
      const asked = new URLSearchParams({ member: one, other });
      const response = await fetch(`/api${here}/formations/${number}/explanations?${asked}`);
      const answer = await response.json();
      told.textContent = response.ok ? answer[0].sentence : "That did not work.";
    });
    element("whatif-reset").addEventListener("click", () => {
      for (const pair of [...tried.keys()]) {
        const [a, b] = pair.split("|").map(Number);
        tried.delete(pair);
        cy.$id(`r${pair}`).remove();
        if (data.rivals.has(pair)) cy.add(rival(a, b));
      }
      show();
      listChanges();
      ask();
    });
  }

  fetch(`${here}/picture.json`)
    .then((response) => response.json())
    .then((found) => {
      const place = new Map(found.participants.map((name, p) => [name, p]));
      data = found;
      data.heaviest = found.benefit.reduce((most, edge) => Math.max(most, edge[2]), 1e-12);
      data.rivals = new Set(found.competition.map(([a, b]) => key(a, b)));
      data.coalitions = found.coalitions.map((group) => group.map((name) => place.get(name)));
      coalitions = data.coalitions;
      draw();
    });
})();
