// Draws scenes and returns for each: the least distance of a line from a third member, in radii; the
// least gaps between coalitions, between labels, and between labels and dots; how far labels stay
// inside the disc of a coalition. All is read from what was drawn.
(scenes) => {
  const svg = document.getElementById("picture");
  const about = { member: (p) => String(p), pair: (a, b) => `${a} ${b}`, region: (k) => `${k}: k` };
  const far = (x, y, [a, b], [c, d]) => {
    const along = ((x - a) * (c - a) + (y - b) * (d - b)) / (Math.hypot(c - a, d - b) ** 2 || 1);
    const t = Math.min(1, Math.max(0, along));
    return Math.hypot(a + t * (c - a) - x, b + t * (d - b) - y);
  };
  const circle = (found) => ["cx", "cy", "r"].map((name) => found[name].baseVal.value);
  // Half sizes and axes of a label's box, which may be turned.
  const box = (text) => {
    const { x, y, width, height } = text.getBBox();
    const turn = (text.transform.baseVal[0].angle * Math.PI) / 180;
    const [u, v] = ["x", "y"].map((name) => text[name].baseVal[0].value);
    const [dx, dy] = [x + width / 2 - u, y + height / 2 - v];
    const [c, s] = [Math.cos(turn), Math.sin(turn)];
    return {
      middle: [u + c * dx - s * dy, v + s * dx + c * dy],
      axes: [[c, s], [-s, c]],
      half: [width / 2, height / 2],
    };
  };
  // The gap between two boxes along the axis that separates them best; negative if they overlap.
  const apart = (one, other) => {
    const reach = (b, [x, y]) =>
      b.axes.reduce((sum, [p, q], k) => sum + b.half[k] * Math.abs(p * x + q * y), 0);
    const gaps = [...one.axes, ...other.axes].map(([x, y]) => {
      const between = (other.middle[0] - one.middle[0]) * x + (other.middle[1] - one.middle[1]) * y;
      return Math.abs(between) - reach(one, [x, y]) - reach(other, [x, y]);
    });
    return Math.max(...gaps);
  };
  const beside = (b, [x, y, r]) => {
    const off = b.axes.map(([p, q], k) =>
      Math.max(0, Math.abs((x - b.middle[0]) * p + (y - b.middle[1]) * q) - b.half[k]));
    return Math.hypot(...off) - r;
  };
  return scenes.map((shapes) => {
    drawScene(svg, shapes, about);
    const found = { line: Infinity, regions: Infinity, labels: Infinity, dots: Infinity, inside: Infinity };
    const least = (name, value) => (found[name] = Math.min(found[name], value));
    const dots = new Map(
      [...svg.querySelectorAll(".member")].map((one) => [
        Number(one.dataset.member), circle(one.querySelector("circle"))]));
    for (const line of svg.querySelectorAll(".line")) {
      const drawn = line.matches("path") ? line : line.querySelector(".dashes");
      const ends = [Number(line.dataset.a), Number(line.dataset.b)];
      const points = drawn.getAttribute("d").slice(1).split("L").map((one) => one.split(" ").map(Number));
      for (const [p, [x, y, r]] of dots) {
        if (ends.includes(p)) continue;
        for (let k = 1; k < points.length; k++) least("line", far(x, y, points[k - 1], points[k]) / r);
      }
    }
    const regions = [...svg.querySelectorAll(".region circle")].map(circle);
    regions.forEach(([x, y, r], k) =>
      regions.slice(k + 1).forEach(([u, v, s]) => least("regions", Math.hypot(x - u, y - v) - r - s)));
    const labels = [...svg.querySelectorAll(".member text")].map(box);
    labels.forEach((one, k) => {
      for (const other of labels.slice(k + 1)) least("labels", apart(one, other));
      for (const dot of dots.values()) least("dots", beside(one, dot));
      const around = regions.map(([x, y, r]) =>
        r - Math.hypot(...one.axes.map(([p, q], i) =>
          Math.abs((one.middle[0] - x) * p + (one.middle[1] - y) * q) + one.half[i])));
      least("inside", Math.max(...around));
    });
    return found;
  });
}
