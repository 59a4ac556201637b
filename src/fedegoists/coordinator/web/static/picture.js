// The members in their coalitions, and a what-if for other competition. The server computes all
// shapes; scene.js draws them.
"use strict";
(() => {
  const bench = document.getElementById("workbench");
  if (!bench) return;
  const began = performance.now();
  // With more members, or where the whole picture would be this small, the coalitions are shown first.
  const MANY = 30;
  const TINY = 0.5;
  const here = `/consortia/${bench.dataset.consortium}`;
  const number = bench.dataset.formation;
  const csrf = document.body.dataset.csrf;
  const element = (id) => document.getElementById(id);
  const svg = element("picture");
  const frame = svg.parentElement;
  let data;
  let shapes;
  let portrait; // whether the shapes are for a frame that is higher than wide
  const tried = new Map(); // "a|b" by position -> true if added, false if removed
  const key = (a, b) => (a < b ? `${a}|${b}` : `${b}|${a}`);
  const rounded = (value) => Math.abs(value).toPrecision(3);
  const isMap = () => svg.classList.contains("map");
  const isNarrow = () => frame.clientWidth < 1.1 * frame.clientHeight;

  const listed = (members) => {
    const names = members.slice(0, 12).map((p) => data.participants[p]);
    return names.join(", ") + (members.length > 12 ? ` and ${members.length - 12} more` : "");
  };
  const home = (p) => shapes.regions.findIndex((one) => one.members.includes(p));
  const titled = (k) => {
    const one = shapes.regions[k];
    const count = `${one.members.length} ${one.members.length === 1 ? "member" : "members"}`;
    return one.together ? `Coalition ${k + 1}: ${count}` : `Alone: ${count}`;
  };
  const told = {
    member(p) {
      const own = shapes.regions[home(p)];
      const name = data.participants[p];
      const gain = data.gains[name] === undefined ? "" : `, gain ${data.gains[name].toPrecision(3)}`;
      if (!own.together) return `${name}${gain}: alone`;
      return `${name}${gain}: coalition ${home(p) + 1}, with ${listed(own.members.filter((other) => other !== p))}`;
    },
    pair: (a, b) => `${data.participants[a]} and ${data.participants[b]} compete`,
    region: titled,
  };

  function render(changes) {
    const held = svg.contains(document.activeElement) ? { ...document.activeElement.dataset } : {};
    drawScene(svg, shapes, told);
    const many = data.participants.length > MANY;
    for (const line of svg.querySelectorAll(".rival"))
      line.classList.toggle("tried", tried.has(key(Number(line.dataset.a), Number(line.dataset.b))));
    for (const one of svg.querySelectorAll(".member")) {
      const change = changes[data.participants[one.dataset.member]] || 0;
      if (change) one.classList.add(change > 0 ? "better" : "worse");
      one.setAttribute("tabindex", many ? -1 : 0);
    }
    reachable();
    fitScene(svg, shapes, isMap());
    for (const [kind, place] of Object.entries(held)) svg.querySelector(`[data-${kind}="${place}"]`)?.focus();
  }

  // On the map, coalitions are buttons that open them.
  function reachable() {
    svg.querySelectorAll(".region").forEach((one, k) => {
      const members = shapes.regions[k].members;
      if (!isMap()) for (const name of ["tabindex", "role", "aria-label"]) one.removeAttribute(name);
      else {
        one.setAttribute("tabindex", 0);
        one.setAttribute("role", "button");
        one.setAttribute("aria-label", `${titled(k)}: ${listed(members)}`);
      }
    });
  }

  // Shows what one member is, and its lines before all others.
  function mark(p) {
    const hint = isMap() ? "Choose a coalition to see its members." : "Point at a member to see its gain and its coalition.";
    element("about").textContent = p === null ? hint : told.member(p);
    svg.classList.toggle("marked", p !== null);
    for (const line of svg.querySelectorAll(".line"))
      line.classList.toggle("own", p !== null && (Number(line.dataset.a) === p || Number(line.dataset.b) === p));
    for (const one of svg.querySelectorAll(".member")) one.classList.toggle("own", Number(one.dataset.member) === p);
  }

  function pointing() {
    const about = (event) => {
      const member = event.target.closest(".member");
      const region = event.target.closest(".region");
      if (member) mark(Number(member.dataset.member));
      else if (region && isMap()) element("about").textContent = `${titled(Number(region.dataset.region))}: ${listed(shapes.regions[region.dataset.region].members)}`;
    };
    const away = (event) => event.target.closest(".member, .region") && mark(null);
    svg.addEventListener("pointerover", about);
    svg.addEventListener("focusin", about);
    svg.addEventListener("pointerout", away);
    svg.addEventListener("focusout", away);
    const open = (event) => {
      const region = event.target.closest(".region");
      if (region && isMap()) showMembers(true, shapes.regions[region.dataset.region]);
    };
    svg.addEventListener("click", (event) => {
      const rival = event.target.closest(".rival");
      if (rival && number) change(Number(rival.dataset.a), Number(rival.dataset.b));
      else open(event);
    });
    svg.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      if (!isMap() || !event.target.closest(".region")) return;
      event.preventDefault();
      open(event);
      frame.focus();
    });
  }

  function showMembers(shown, around) {
    svg.classList.toggle("map", !shown);
    element("show-members").checked = shown;
    reachable();
    fitScene(svg, shapes, isMap());
    mark(null);
    const { x, y } = around || { x: shapes.width / 2, y: shapes.height / 2 };
    toMiddle(x, y);
  }

  function toMiddle(x, y) {
    const scale = svg.clientWidth / (shapes.width + 2 * SCENE_MARGIN);
    const place = (at, room) => (at + SCENE_MARGIN) * scale - room / 2;
    frame.scrollTo(place(x, frame.clientWidth), place(y, frame.clientHeight));
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
      line = svgElement(svg, "line", { x1: x, y1: y, x2: x, y2: y, class: "reaching" });
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
      result?.replaceChildren(); // there is no what-if before a decision
      return;
    }
    const pairs = (wanted) =>
      [...tried]
        .filter(([, added]) => added === wanted)
        .map(([pair]) => pair.split("|").map((p) => data.participants[p]));
    const response = await fetch(`/api${here}/formations/${number}/what-if`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": csrf },
      body: JSON.stringify({ add: pairs(true), remove: pairs(false), scene: true, portrait }),
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

  element("save-svg").addEventListener("click", () => savedFile("coalitions.svg", sceneFile(svg), "image/svg+xml"));
  element("save-png").addEventListener("click", async () => savedFile("coalitions.png", await sceneImage(svg), "image/png"));
  pointing();

  async function load() {
    portrait = isNarrow();
    const response = await fetch(`${here}/picture.json?portrait=${portrait}`);
    if (!response.ok) {
      element("about").textContent = "The picture could not be loaded; load the page again.";
      return;
    }
    data = await response.json();
    data.rivals = new Set(data.scene.competition.map((line) => key(line.source, line.target)));
    shapes = data.scene;
  }

  load().then(() => {
    if (!data) return;
    const many = data.participants.length > MANY || wholeScale(svg, shapes) < TINY;
    svg.classList.toggle("map", many);
    element("members-switch").hidden = !many;
    show();
    render({});
    showMembers(!many);
    new ResizeObserver(async () => {
      if (isNarrow() !== portrait) {
        bench.dataset.ready = "";
        await load();
        await ask(); // draws the shapes, or those of the what-if
        bench.dataset.ready = String(Math.round(performance.now() - began));
      }
      fitScene(svg, shapes, isMap());
    }).observe(frame);
    requestAnimationFrame(() => (bench.dataset.ready = String(Math.round(performance.now() - began))));
  });
})();
