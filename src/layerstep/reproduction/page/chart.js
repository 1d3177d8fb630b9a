"use strict";
// Two charts in plain SVG: lines and a heat map. No library, nothing fetched. Both are read with pointer, finger or arrow keys.

function element(tag, attributes, parent, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function canvas(holder, height, label) {
  const W = Math.min(Math.max(holder.clientWidth, 300), 960);
  holder.replaceChildren();
  return [element("svg", {viewBox: `0 0 ${W} ${height}`, tabindex: 0, role: "img", "aria-label": label}, holder), W];
}

const nearest = (values, wanted) => values.reduce(
  (best, value, i) => Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? i : best, 0);

// Pointer and arrow keys: `toCell(x, y)` turns a place in the drawing into a cell, `move(cell)` shows it.
function follow(svg, cell, toCell, clamp, move) {
  const show = next => move(cell = clamp(next));
  const point = event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    show(toCell((event.clientX - box.left) * scale, (event.clientY - box.top) * scale));
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("keydown", event => {
    const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[event.key];
    if (!step) return;
    event.preventDefault();
    show([cell[0] + step[0], cell[1] + step[1]]);
  });
  show(cell);
}

// series: [{label, color, dash, x: [...], y: [...]}]; stops: the x where the cursor may stand; onMove is given one of them.
function lineChart(holder, {series, line, stops, at, xLog, xLabel, yLabel, onMove}) {
  const H = 340, left = 58, right = 14, top = 12, bottom = 42;
  const [svg, W] = canvas(holder, H, `${yLabel} against ${xLabel}; left and right arrow keys move the cursor`);
  const fx = value => xLog ? Math.log10(value + 1) : value;        // step 0 has its place on a logarithmic axis
  const ys = series.flatMap(s => s.y).concat(line ? [line.y] : []);
  const x0 = fx(stops[0]), x1 = fx(stops.at(-1));
  const y0 = Math.log10(Math.min(...ys) * 0.85), y1 = Math.log10(Math.max(...ys) * 1.15);
  const px = value => left + (fx(value) - x0) / (x1 - x0) * (W - left - right);
  const py = value => top + (y1 - Math.log10(value)) / (y1 - y0) * (H - top - bottom);
  const digits = y1 - y0 < 3.3 ? [1, 2, 5] : [1], powers = Array.from({length: 13}, (_, i) => i - 6);
  for (const t of powers.flatMap(p => digits.map(d => Number(`${d}e${p}`)))) {
    if (Math.log10(t) < y0 || Math.log10(t) > y1) continue;
    element("line", {x1: left, x2: W - right, y1: py(t), y2: py(t), class: "grid"}, svg);
    element("text", {x: left - 8, y: py(t) + 4, "text-anchor": "end"}, svg, t);
  }
  const most = stops.at(-1), round = most > 600 ? 300 : most > 250 ? 100 : most > 60 ? 50 : most > 20 ? 10 : 2;
  const even = Array.from({length: Math.floor(most / round) + 1}, (_, i) => i * round);
  for (const t of (xLog ? [0, 1, 3, 10, 30, 100, 300, 1000] : even).filter(t => t >= stops[0] && t <= most)) {
    element("line", {x1: px(t), x2: px(t), y1: top, y2: H - bottom, class: "grid"}, svg);
    element("text", {x: px(t), y: H - bottom + 18, "text-anchor": "middle"}, svg, t);
  }
  element("text", {x: (left + W) / 2, y: H - 6, "text-anchor": "middle"}, svg, xLabel);
  element("text", {transform: `translate(14 ${H / 2}) rotate(-90)`, "text-anchor": "middle"}, svg, yLabel);
  if (line) {
    element("line", {x1: left, x2: W - right, y1: py(line.y), y2: py(line.y), class: "axis", "stroke-dasharray": "5 4"}, svg);
    element("text", {x: left + 6, y: py(line.y) + 14}, svg, line.label);  // below: curves end above it
  }
  for (const s of series) {
    const points = s.x.map((x, i) => `${px(x).toFixed(1)},${py(s.y[i]).toFixed(1)}`).join(" ");
    element("polyline", {points, fill: "none", stroke: s.color, "stroke-width": s.wide ? 3.2 : 2.2, "stroke-dasharray": s.dash}, svg);
  }
  const cursor = element("line", {y1: top, y2: H - bottom, class: "axis"}, svg);
  const places = stops.map(px);
  follow(svg, [nearest(stops, at), 0], x => [nearest(places, x), 0],
    ([i]) => [Math.min(Math.max(i, 0), stops.length - 1), 0],
    ([i]) => {
      cursor.setAttribute("x1", places[i]); cursor.setAttribute("x2", places[i]);
      onMove(stops[i]);
    });
}

// The colours of cividis, dark is low.
const CIVIDIS = [[0, 34, 78], [66, 78, 108], [124, 123, 120], [188, 175, 111], [254, 232, 56]];
function cividis(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1), i = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return `rgb(${CIVIDIS[i].map((low, c) => Math.round(low + (at - i) * (CIVIDIS[i + 1][c] - low))).join(",")})`;
}

// values[column][row], its columns and rows numbered; marks[column] is the row of the square; onMove is given both indices.
function heatMap(holder, {values, columns, rows, marks, low, xLabel, yLabel, onMove}) {
  const H = 380, left = 58, right = 14, top = 12, bottom = 42;
  const [svg, W] = canvas(holder, H, `${yLabel} by ${xLabel}; arrow keys move the cursor`);
  const wide = (W - left - right) / columns.length, px = i => left + i * wide;
  // A row reaches half-way to its neighbours on a logarithmic axis; step 0 has its place at log(0 + 1).
  const logs = rows.map(row => Math.log(row + 1)), last = logs.length - 1;
  const edges = [0, ...logs.slice(1).map((value, j) => (value + logs[j]) / 2), logs[last]];
  const py = value => H - bottom - value / logs[last] * (H - top - bottom), tall = j => py(edges[j]) - py(edges[j + 1]);
  const middle = j => (py(edges[j]) + py(edges[j + 1])) / 2;
  const cells = element("g", {"shape-rendering": "crispEdges"}, svg);
  values.forEach((column, i) => column.forEach((value, j) => element("rect",
    {x: px(i), y: py(edges[j + 1]), width: wide + 0.5, height: tall(j) + 0.5, fill: cividis((value - low) / (1 - low))}, cells)));
  marks.forEach((j, i) => element("rect",
    {x: px(i) + wide / 2 - 5, y: middle(j) - 5, width: 10, height: 10, class: "mark"}, svg));
  const every = Math.ceil(columns.length / 12);
  columns.forEach((layer, i) => i % every || element("text",
    {x: px(i) + wide / 2, y: H - bottom + 18, "text-anchor": "middle"}, svg, layer));
  for (const t of [0, 1, 3, 10, 30, 100, 300, 1000].filter(t => t <= rows[last]))
    element("text", {x: left - 8, y: middle(nearest(rows, t)) + 4, "text-anchor": "end"}, svg, t);
  element("text", {x: (left + W) / 2, y: H - 6, "text-anchor": "middle"}, svg, xLabel);
  element("text", {transform: `translate(14 ${H / 2}) rotate(-90)`, "text-anchor": "middle"}, svg, yLabel);
  const cursor = element("rect", {width: wide, class: "cursor"}, svg);
  const start = Math.floor(columns.length / 2);
  follow(svg, [start, marks[start]],
    (x, y) => [Math.floor((x - left) / wide), nearest(rows.map((_, j) => middle(j)), y)],
    ([i, j]) => [Math.min(Math.max(i, 0), columns.length - 1), Math.min(Math.max(j, 0), last)],
    ([i, j]) => {
      const height = Math.max(tall(j), 6);
      for (const [name, value] of Object.entries({x: px(i), y: middle(j) - height / 2, height})) cursor.setAttribute(name, value);
      onMove(i, j);
    });
}
