(() => {
  const {curves, outcome, panels} = JSON.parse(document.getElementById("picker-data").textContent);
  const of = id => document.getElementById("picker-" + id);
  const [left, right, top, bottom] = [16, 624, 34, 262];

  function element(name, attributes, ...inside) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  }

  function ticks(low, high, whole) {
    const rough = (high - low) / 6, size = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map(k => k * size).find(k => k >= rough);
    if (whole) step = Math.max(1, Math.round(step));
    const first = Math.ceil(low / step), count = Math.floor(high / step) - first + 1;
    return Array.from({length: Math.max(count, 0)}, (_, k) => Number(((first + k) * step).toPrecision(12)));
  }

  const shown = number => String(number).replace("-", "\u2212");

  function draw(panel) {
    const pad = panel.discrete ? 0.5 : 0;
    const [low, high] = [panel.y[0] - pad, panel.y[1] + pad];
    const x = y => left + (right - left) * (y - low) / (high - low || 1);
    const height = v => bottom - (bottom - top) * v / 999;
    const where = k => panel.discrete
      ? panel.y[0] + k * (panel.step || 1)
      : panel.y[0] + (panel.y[1] - panel.y[0]) * k / (panel.curves[0].length - 1);
    const stems = panel.discrete && panel.curves[0].length <= 60;
    const parts = [element("line", {x1: left, x2: right, y1: bottom, y2: bottom, stroke: "currentColor"})];
    for (const at of ticks(low, high, panel.discrete)) {
      parts.push(element("line", {x1: x(at), x2: x(at), y1: bottom, y2: bottom + 5, stroke: "currentColor"}));
      parts.push(element("text", {x: x(at), y: bottom + 18, "text-anchor": "middle"}, shown(at)));
    }
    parts.push(element("text", {x: right, y: bottom + 34, "text-anchor": "end"}, outcome));
    // Points of the models would be hidden behind stems that are drawn later.
    const order = [...curves.keys()].sort((a, b) => stems ? !curves[a].pool - !curves[b].pool : a - b);
    order.forEach(c => {
      const values = panel.curves[c], {colour, pool} = curves[c], width = pool ? 3 : 1.6;
      const points = values.map((v, k) => `${x(where(k)).toFixed(1)},${height(v).toFixed(1)}`);
      if (stems) {
        values.forEach((v, k) => {
          if (pool) parts.push(element("line", {x1: x(where(k)), x2: x(where(k)), y1: bottom, y2: height(v), stroke: colour, "stroke-width": 2.4}));
          parts.push(element("circle", {cx: x(where(k)), cy: height(v), r: pool ? 5 : 3, fill: colour}));
        });
        return;
      }
      if (pool) parts.push(element("path", {d: `M${x(where(0))},${bottom} L${points.join(" L")} L${right},${bottom} Z`, fill: colour, opacity: 0.18}));
      parts.push(element("path", {d: "M" + points.join(" L"), fill: "none", stroke: colour, "stroke-width": width}));
    });
    if (panel.observed !== null) {
      const at = x(panel.observed), end = at > (left + right) / 2;
      parts.push(element("line", {x1: at, x2: at, y1: 8, y2: bottom, stroke: "currentColor", "stroke-dasharray": "2 3", "stroke-width": 1.5}));
      parts.push(element("text", {x: at + (end ? -6 : 6), y: 18, "text-anchor": end ? "end" : "start"}, "observed"));
    }
    of("picture").replaceChildren(...parts);
  }

  function cell(name, text, scope) {
    const made = document.createElement(name);
    if (scope) made.scope = scope;
    made.textContent = text;
    return made;
  }

  function tell(panel) {
    const observed = panel.observed === null ? "" : `: ${outcome} = ${shown(Number(panel.observed.toPrecision(5)))}`;
    of("said").textContent = `${panel.title}${observed}`;
    const best = panel.at.map((at, c) => [parseFloat(at.replace("\u2212", "-")), curves[c].name])
      .filter(([at]) => !Number.isNaN(at)).sort((a, b) => b[0] - a[0])[0];
    of("picture").setAttribute("aria-label", `Predictive densities of ${panel.title}${observed}.`
      + (best ? ` The density at the outcome is highest under ${best[1]}.` : ""));
    const head = document.createElement("tr");
    const probability = panel.discrete ? "log probability" : "log density";
    head.append(...["prediction", "weight", "middle 90\u00a0%", `${probability} of the outcome`].map(t => cell("th", t, "col")));
    const rows = curves.map((curve, c) => {
      const row = document.createElement("tr"), name = cell("th", "", "row"), swatch = document.createElement("span");
      swatch.className = curve.pool ? "swatch pool" : "swatch";
      swatch.style.background = curve.colour;
      name.append(swatch, curve.name);
      row.append(name, ...[curve.pool ? "" : panel.weights[c].toFixed(2), panel.interval[c], panel.at[c]].map(t => cell("td", t)));
      return row;
    });
    const [thead, tbody] = ["thead", "tbody"].map(t => document.createElement(t));
    thead.append(head);
    tbody.append(...rows);
    of("table").replaceChildren(thead, tbody);
  }

  function show(k) {
    const panel = panels[k];
    of("obs").value = k;
    of("back").disabled = k === 0;
    of("on").disabled = k === panels.length - 1;
    draw(panel);
    tell(panel);
  }

  of("obs").addEventListener("change", () => show(Number(of("obs").value)));
  of("back").addEventListener("click", () => show(Number(of("obs").value) - 1));
  of("on").addEventListener("click", () => show(Number(of("obs").value) + 1));
  show(0);
  document.getElementById("picker").hidden = false;
  document.documentElement.classList.add("scripted");
})();
