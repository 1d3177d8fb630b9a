// What can be explored: errors by layer, step or number of examples; similarity of errors; a constructed network at work.

const LOOKS = {
  model: ["var(--ink)", ""], richardson: ["#D55E00", ""], cg: ["#0072B2", "7 4"], gd: ["#009E73", "10 3 2 3"], nesterov: ["#CC79A7", "2 3"],
};

const control = (root, name) => root.querySelector(`[data-control=${name}]`);

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, label]) => new Option(label, value)));
  if (chosen !== undefined) select.value = chosen;
}

// The legend is the read-out: a line's look, its name and its value under the cursor.
function legend(list, entries) {
  list.replaceChildren(...entries.map(({label, color, dash, dot, value}) => {
    const item = document.createElement("li");
    const svg = element("svg", {viewBox: "0 0 30 8", width: 30, height: 8, "aria-hidden": true}, item);
    if (dot) element("circle", {cx: 15, cy: 4, r: 4, fill: color}, svg);
    else element("line", {x1: 0, x2: 30, y1: 4, y2: 4, stroke: color, "stroke-width": 2.4, "stroke-dasharray": dash}, svg);
    item.append(` ${label} `, Object.assign(document.createElement("b"), {textContent: value}));
    return item;
  }));
}

// Errors of a model and of the solvers: against layer and step for one n, or against n for one layer and one step.
function errors(root, {titles, settings, models}) {
  const [subject, view, context, logarithmic, layer, step] =
    ["subject", "view", "context", "logarithmic", "layer", "step"].map(name => control(root, name));
  const subjects = {...models};
  for (const name of Object.keys(settings)) subjects[`solvers-${name}`] = {label: `solvers alone: ${titles[name]}`, setting: name, ...settings[name]};
  options(subject, Object.entries(subjects).map(([name, found]) => [name, found.label]));
  const chart = root.querySelector(".chart"), heading = root.querySelector("output"), list = root.querySelector(".legend");
  const draw = () => {
    const model = subjects[subject.value], curves = settings[model.setting]?.solvers ?? {};
    options(context, model.contexts.map(n => [n, n]), context.value || model.contexts.at(-1));
    const row = Math.max(model.contexts.indexOf(Number(context.value)), 0);
    const depth = view.value === "depth";
    for (const [input, shown] of [[context, depth], [logarithmic, depth], [layer, !depth && model.layers], [step, !depth]])
      input.closest("label").hidden = !shown;
    const most = Math.max(...Object.values(curves).map(s => s.steps.at(-1)), model.layers?.at(-1) ?? 0);
    layer.max = model.layers?.at(-1) ?? 0; step.max = most;
    const l = Math.min(layer.value, layer.max), t = Math.min(step.value, step.max);
    layer.nextElementSibling.textContent = l; step.nextElementSibling.textContent = t;
    const lines = Object.entries(curves).map(([name, s]) => [name, s.label, s.steps, s.mse, t]);
    if (model.layers) lines.unshift(["model", "this model", model.layers, model.layer_mse, l]);
    const series = lines.map(([name, label, x, mse, at]) => ({
      label, color: LOOKS[name][0], dash: LOOKS[name][1], wide: name === "model",
      x: depth ? x : model.contexts, y: depth ? mse[row] : mse.map(curve => curve[nearest(x, at)]),
    }));
    if (!depth) series.push({label: "exact", color: "var(--soft)", dash: "5 4", x: model.contexts, y: model.krr});
    const all = [...new Set(series.flatMap(s => s.x))].sort((a, b) => a - b);
    lineChart(chart, {
      series, stops: all, at: depth ? 12 : 40, xLog: depth && logarithmic.checked, yLabel: "mean squared error",
      xLabel: depth ? (model.layers ? "layer, or solver step" : "solver step") : "examples n",
      line: depth ? {y: model.krr[row], label: "exact kernel ridge regression"} : undefined,
      onMove: x => {
        heading.textContent = depth ? `n = ${model.contexts[row]}, after layer or step ${x}:`
          : `n = ${x}${model.layers ? `, model after layer ${l}` : ""}, solvers after step ${t}:`;
        const values = series.map(s => ({  // a curve that has ended keeps its last value, and says so
          ...s, value: s.y[nearest(s.x, x)].toPrecision(3) + (x > s.x.at(-1) ? ` (after ${s.x.at(-1)})` : ""),
        }));
        if (depth) values.push({label: "exact", color: "var(--soft)", dash: "5 4", value: model.krr[row].toPrecision(3)});
        legend(list, values);
      },
    });
  };
  for (const input of [subject, view, context, logarithmic, layer, step]) input.addEventListener("input", draw);
  window.addEventListener("resize", draw);
  draw();
}

// Similarity of errors of every layer of a model with every step of a solver.
function similarity(root, {models, solvers}) {
  const [subject, solver] = ["subject", "solver"].map(name => control(root, name));
  options(subject, Object.entries(models).map(([name, found]) => [name, found.label]));
  options(solver, Object.entries(solvers));
  const chart = root.querySelector(".chart"), heading = root.querySelector("output");
  const draw = () => {
    const model = models[subject.value], {steps, sime, best_step, best_sime, r2} = model.solvers[solver.value];
    const layers = model.layers.slice(1), name = solvers[solver.value];
    const low = Math.min(...Object.values(model.solvers).flatMap(s => s.sime.flat()));
    heatMap(chart, {
      values: sime, columns: layers, rows: steps, marks: best_step.map(t => nearest(steps, t)), low,
      xLabel: "layer", yLabel: `${name} step`,
      onMove: (i, j) => {
        heading.textContent = `Layer ${layers[i]}, ${name} step ${steps[j]}: SimE ${sime[i][j].toFixed(2)}. Most similar to ` +
          `this layer: step ${best_step[i]}, SimE ${best_sime[i].toFixed(3)}. R² of the best steps: ${r2?.toFixed(3) ?? "none"}.`;
      },
    });
  };
  for (const input of [subject, solver]) input.addEventListener("input", draw);
  window.addEventListener("resize", draw);
  draw();
}

// The constructed network's answer at every query after the chosen iteration, and how far it can be from the exact one.
// Under the cursor: which examples the query reads, each circle as large as its share of the attention.
function walker(root, walk) {
  const slider = control(root, "stage"), holder = root.querySelector(".chart");
  slider.max = walk.readout.length - 1;
  let under = null;
  const draw = () => {
    const H = 320, pad = 30, [svg, W] = canvas(holder, H, "Prediction of the constructed transformer after the chosen iteration");
    svg.removeAttribute("tabindex");
    const all = walk.y.concat(...walk.readout, walk.exact), low = Math.min(...all), high = Math.max(...all);
    const px = x => pad + (x + 1) / 2 * (W - 2 * pad), py = y => H - pad - (y - low) / (high - low) * (H - 2 * pad);
    const inside = y => Math.min(Math.max(y, 0), H);
    const points = values => walk.queries.map((x, i) => `${px(x).toFixed(1)},${py(values[i]).toFixed(1)}`).join(" ");
    element("line", {x1: pad, x2: W - pad, y1: py(0), y2: py(0), class: "grid"}, svg);
    const stage = Number(slider.value), answer = walk.readout[stage], bounds = walk.bounds[stage];
    for (const [value, words] of [[low, low.toFixed(1)], [0, "0"], [high, high.toFixed(1)]])
      element("text", {x: pad - 6, y: py(value) + 4, "text-anchor": "end"}, svg, words);
    for (const x of [-1, 0, 1]) element("text", {x: px(x), y: H - 6, "text-anchor": "middle"}, svg, x === 0 ? "x = 0" : x);
    const edge = (sign, i) => `${px(walk.queries[i]).toFixed(1)},${inside(py(answer[i] + sign * bounds[i])).toFixed(1)}`;
    const there = answer.map((_, i) => edge(1, i)), back = answer.map((_, i) => edge(-1, i)).reverse();
    element("polygon", {points: [...there, ...back].join(" "), fill: "#D55E00", opacity: 0.15}, svg);
    element("polyline", {points: points(walk.exact), fill: "none", class: "axis", "stroke-dasharray": "5 4"}, svg);
    element("polyline", {points: points(answer), fill: "none", stroke: "#D55E00", "stroke-width": 2.4}, svg);
    if (under !== null) element("line", {x1: px(walk.queries[under]), x2: px(walk.queries[under]), y1: 0, y2: H, class: "grid"}, svg);
    walk.x.forEach((x, i) => {
      const r = under === null ? 4.5 : 2 + 20 * Math.sqrt(walk.reads[under][i] / Math.PI);
      element("circle", {cx: px(x), cy: py(walk.y[i]), r: r.toFixed(1), fill: "#0072B2", opacity: under === null ? 1 : 0.7}, svg);
    });
    const error = Math.max(...answer.map((value, i) => Math.abs(value - walk.exact[i])));
    root.querySelector("output").textContent =
      `${stage} of ${walk.readout.length - 1}: at most ${error.toPrecision(2)} from the exact answer, where the bound is ` +
      `${Math.max(...bounds).toPrecision(2)}. After the last of ${walk.blocks} blocks of width ${walk.width}: below ` +
      `${walk.bound.toPrecision(2)}, guaranteed.`;
    legend(root.querySelector(".legend"), [
      {label: "examples in the prompt", color: "#0072B2", dot: true, value: ""},
      {label: "the transformer's answer, shaded: its bound", color: "#D55E00", dash: "", value: ""},
      {label: "exact answer (KRR)", color: "var(--soft)", dash: "5 4", value: ""},
    ]);
  };
  holder.addEventListener("pointermove", event => {
    const box = holder.firstElementChild.getBoundingClientRect(), W = holder.firstElementChild.viewBox.baseVal.width;
    const x = ((event.clientX - box.left) * W / box.width - 30) / (W - 60) * 2 - 1, now = nearest(walk.queries, x);
    if (now === under) return;
    under = now;
    draw();
  });
  holder.addEventListener("pointerleave", () => { under = null; draw(); });
  slider.addEventListener("input", draw);
  window.addEventListener("resize", draw);
  draw();
}

const data = JSON.parse(document.getElementById("data").textContent);
const start = (id, there, run) => {
  const root = document.getElementById(id);
  if (there && root) run(root);
  else root?.remove();
};
start("errors", Object.keys(data.settings).length + Object.keys(data.models).length, root => errors(root, data));
start("similarity", Object.keys(data.models).length, root => similarity(root, data));
start("walker", data.walk, root => walker(root, data.walk));

// A family of figures shows one at a time.
for (const part of document.querySelectorAll("details.part")) {
  const select = part.querySelector(".family select");
  const figures = [...part.children].filter(child => child.tagName === "FIGURE");
  if (!select) continue;
  const show = () => figures.forEach(figure => figure.hidden = figure.id !== select.value);
  select.addEventListener("input", show);
  show();
}

// A link to what is folded or not chosen opens it.
function reveal() {
  const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!wanted) return;
  for (let node = wanted; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  const select = wanted.tagName === "FIGURE" && wanted.parentElement.querySelector(":scope > .family select");
  if (select) { select.value = wanted.id; select.dispatchEvent(new Event("input")); }
  wanted.scrollIntoView();
}
window.addEventListener("hashchange", reveal);
reveal();

// What was drawn while folded had no width: draw it when it opens.
document.querySelectorAll("details.part").forEach(part =>
  part.addEventListener("toggle", () => window.dispatchEvent(new Event("resize"))));

// The contents say where one is.
const places = new Map([...document.querySelectorAll("nav a")].map(a => [a.hash.slice(1), a]));
const watch = new IntersectionObserver(entries => entries.forEach(entry => {
  if (!entry.isIntersecting) return;
  places.forEach(a => a.removeAttribute("aria-current"));
  places.get(entry.target.id)?.setAttribute("aria-current", "true");
}), {rootMargin: "-20% 0px -70% 0px"});
document.querySelectorAll("main > section").forEach(section => watch.observe(section));
