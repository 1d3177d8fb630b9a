"use strict";
// A line chart in plain SVG, and the explorer that uses it. No library, nothing fetched.

const LOOKS = {
  richardson: ["#D55E00", ""], cg: ["#0072B2", "7 4"], gd: ["#009E73", "10 3 2 3"], nesterov: ["#CC79A7", "2 3"],
};

function element(tag, attributes, parent, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// series: [{label, color, dash, x: [...], y: [...]}]; onMove is given the nearest x as the pointer moves.
function lineChart(holder, {series, line, xLog, xLabel, yLabel, onMove}) {
  const W = Math.min(Math.max(holder.clientWidth, 340), 900), H = 360, left = 60, right = 16, top = 14, bottom = 44;
  const shift = xLog ? 1 : 0;                            // step 0 has its place on a logarithmic axis: log(1 + step)
  const fx = value => xLog ? Math.log10(value + shift) : value;
  const xs = series.flatMap(s => s.x), ys = series.flatMap(s => s.y).concat(line ? [line.y] : []);
  const x1 = fx(Math.max(...xs)), y0 = Math.log10(Math.min(...ys) * 0.85), y1 = Math.log10(Math.max(...ys) * 1.15);
  const px = value => left + fx(value) / x1 * (W - left - right);
  const py = value => top + (y1 - Math.log10(value)) / (y1 - y0) * (H - top - bottom);
  holder.replaceChildren();
  const svg = element("svg", {viewBox: `0 0 ${W} ${H}`}, holder);
  const ticks = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5].filter(t => Math.log10(t) > y0 && Math.log10(t) < y1);
  for (const t of ticks) {
    element("line", {x1: left, x2: W - right, y1: py(t), y2: py(t), class: "grid"}, svg);
    element("text", {x: left - 8, y: py(t) + 4, "text-anchor": "end"}, svg, t);
  }
  const steps = xLog ? [0, 1, 3, 10, 30, 100, 200] : [0, 50, 100, 150, 200];
  for (const t of steps.filter(t => fx(t) <= x1 + 1e-9)) {
    element("line", {x1: px(t), x2: px(t), y1: top, y2: H - bottom, class: "grid"}, svg);
    element("text", {x: px(t), y: H - bottom + 18, "text-anchor": "middle"}, svg, t);
  }
  element("text", {x: (left + W) / 2, y: H - 6, "text-anchor": "middle"}, svg, xLabel);
  element("text", {transform: `translate(14 ${H / 2}) rotate(-90)`, "text-anchor": "middle"}, svg, yLabel);
  if (line) {
    element("line", {x1: left, x2: W - right, y1: py(line.y), y2: py(line.y), class: "axis", "stroke-dasharray": "5 4"}, svg);
    element("text", {x: left + 6, y: py(line.y) - 5}, svg, line.label);
  }
  for (const s of series) {
    const points = s.x.map((x, i) => `${px(x).toFixed(1)},${py(s.y[i]).toFixed(1)}`).join(" ");
    element("polyline", {points, fill: "none", stroke: s.color, "stroke-width": 2.2, "stroke-dasharray": s.dash}, svg);
  }
  series.forEach((s, i) => {
    const y = top + 14 + 18 * i, x = W - right - 200;
    element("line", {x1: x, x2: x + 30, y1: y - 4, y2: y - 4, stroke: s.color, "stroke-width": 2.2, "stroke-dasharray": s.dash}, svg);
    element("text", {x: x + 36, y}, svg, s.label);
  });
  const cursor = element("line", {y1: top, y2: H - bottom, class: "axis", visibility: "hidden"}, svg);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width * W - left) / (W - left - right) * x1;
    const value = Math.round(xLog ? 10 ** Math.min(Math.max(at, 0), x1) - shift : Math.min(Math.max(at, 0), x1));
    cursor.setAttribute("x1", px(value)); cursor.setAttribute("x2", px(value));
    cursor.setAttribute("visibility", "visible");
    onMove(value);
  });
}

function explorer(root, {titles, settings}) {
  const control = name => root.querySelector(`[data-control=${name}]`);
  const [setting, context, logarithmic] = ["setting", "context", "logarithmic"].map(control);
  for (const name of Object.keys(settings)) setting.add(new Option(titles[name], name));
  const first = Object.values(settings)[0];
  for (const n of first.contexts) context.add(new Option(n, n));
  context.value = first.contexts.at(-1);
  const readout = root.querySelector(".readout");
  const draw = () => {
    const data = settings[setting.value], row = data.contexts.indexOf(Number(context.value));
    const series = Object.entries(data.solvers).map(([name, s]) => (
      {label: s.label, color: LOOKS[name][0], dash: LOOKS[name][1], x: s.steps, y: s.mse[row]}));
    const say = step => {
      const parts = series.map(s => `${s.label} ${s.y[Math.min(step, s.y.length - 1)].toPrecision(3)}`);
      readout.textContent = `After ${step} steps: ${parts.join(" · ")} · exact ${data.krr[row].toPrecision(3)}`;
    };
    lineChart(root.querySelector(".chart"), {
      series, line: {y: data.krr[row], label: "exact kernel ridge regression"}, xLog: logarithmic.checked,
      xLabel: "step", yLabel: "mean squared error", onMove: say,
    });
    say(12);
  };
  for (const input of [setting, context, logarithmic]) input.addEventListener("change", draw);
  window.addEventListener("resize", draw);
  draw();
}

// The constructed network's answer at every query after the chosen iteration.
function walker(root, walk) {
  const slider = root.querySelector("[data-control=stage]"), holder = root.querySelector(".chart");
  slider.max = walk.readout.length - 1;
  const draw = () => {
    const W = Math.min(Math.max(holder.clientWidth, 340), 900), H = 320, pad = 30;
    const all = walk.y.concat(...walk.readout, walk.exact), low = Math.min(...all), high = Math.max(...all);
    const px = x => pad + (x + 1) / 2 * (W - 2 * pad), py = y => H - pad - (y - low) / (high - low) * (H - 2 * pad);
    const points = values => walk.queries.map((x, i) => `${px(x).toFixed(1)},${py(values[i]).toFixed(1)}`).join(" ");
    holder.replaceChildren();
    const svg = element("svg", {viewBox: `0 0 ${W} ${H}`}, holder);
    element("line", {x1: pad, x2: W - pad, y1: py(0), y2: py(0), class: "grid"}, svg);
    const stage = Number(slider.value), answer = walk.readout[stage];
    element("polyline", {points: points(walk.exact), fill: "none", class: "axis", "stroke-dasharray": "5 4"}, svg);
    element("polyline", {points: points(answer), fill: "none", stroke: "#D55E00", "stroke-width": 2.4}, svg);
    walk.x.forEach((x, i) => element("circle", {cx: px(x), cy: py(walk.y[i]), r: 4.5, fill: "#0072B2"}, svg));
    const error = Math.max(...answer.map((value, i) => Math.abs(value - walk.exact[i])));
    root.querySelector("output").textContent =
      `${stage} of ${walk.readout.length - 1}: largest distance to exact KRR ${error.toPrecision(2)}; ` +
      `after the last of ${walk.blocks} blocks of width ${walk.width} it is guaranteed below ${walk.bound.toPrecision(2)}`;
  };
  slider.addEventListener("input", draw);
  window.addEventListener("resize", draw);
  draw();
}

const data = JSON.parse(document.getElementById("data").textContent);
if (Object.keys(data.settings).length) explorer(document.getElementById("explorer"), data);
else document.getElementById("explorer").remove();
if (data.walk) walker(document.getElementById("walker"), data.walk);
