// The report's page, drawn from the JSON in #data (apps/report/report_page.cpp). Whatever the data say is put
// in as text, never as markup.

// --- Tables ---

const kTableRows = 1000;

function csvText(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv(figure) {
  const lines = [[...figure.keys, ...figure.columns].map(csvText)];
  for (const group of figure.groups) {
    const front = group.key.map(csvText);
    for (const row of group.rows) lines.push([...front, ...row.map((value) => value ?? "")]);
  }
  return lines.map((line) => line.join(",") + "\r\n").join("");
}

function table(head, rows) {
  const body = make("tbody");
  for (const row of rows) body.append(make("tr", {}, ...row));
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table, scrolls sideways" },
    make("table", {}, make("thead", {}, ...head), body));
}

const heading = (text, properties = {}) => make("th", { scope: "col", ...properties }, text);

function rawTable(figure) {
  const head = make("tr", {}, ...[...figure.keys, ...figure.columns].map((name, i) =>
    heading(name.replaceAll("_", " "), { class: i < figure.keys.length ? "text" : "" })));
  const rows = [];
  let left = 0;
  for (const group of figure.groups) {
    for (const row of group.rows) {
      if (rows.length === kTableRows) ++left;
      else {
        rows.push([...group.key.map((text) => make("td", { class: "text" }, text)),
          ...row.map((value) => make("td", {}, value === null ? "" : String(value)))]);
      }
    }
  }
  const element = table([head], rows);
  if (left) element.append(make("p", {}, `${whole(left)} more rows are in the CSV file.`));
  return element;
}

function dataLinks(figure) {
  const link = make("a", { download: `${figure.id}.csv`, href: "data:text/csv;charset=utf-8," }, "CSV");
  link.setAttribute("aria-label", `CSV of: ${figure.title}`);
  link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(csv(figure));
  const details = make("details", {}, make("summary", {}, "Table"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(rawTable(figure));
  });
  return make("div", { class: "data" }, make("span", {}, "Data: ", link), details);
}

// --- Figures ---

// The groups whose key at `index` is `value`.
const withKey = (figure, index, value) => figure.groups.filter((group) => group.key[index] === value);
const keyValues = (figure, index) => [...new Set(figure.groups.map((group) => group.key[index]))];

function lineOf(group, nameIndex, column) {
  const name = group.key[nameIndex];
  return {
    name,
    style: styleOf(name),
    points: group.rows.map((row) => [row[0], row[column]]).filter((point) => point[1] !== null),
  };
}

// A figure with a panel for each value of its first key, and a line for each of its last.
function panels(figure, element, options) {
  const charts = [];
  const last = figure.keys.length - 1;
  const names = keyValues(figure, last);
  const values = keyValues(figure, 0);
  const box = make("div", { class: values.length > 2 ? "panels many" : "panels" });
  for (const value of values) {
    const lines = withKey(figure, 0, value).map((group) => lineOf(group, last, 1));
    const panelName = options.panelName(value, withKey(figure, 0, value)[0]);
    const alone = values.length === 1;
    const one = chart({ ...options, yName: alone ? `${options.yName}: ${panelName}` : options.yName,
      label: `${figure.title}, ${value}`, lines: () => (options.part ? options.part.of(lines) : lines) });
    charts.push(one);
    box.append(make("div", { class: "panel" }, ...(alone ? [] : [make("h3", {}, panelName)]), one));
  }
  element.append(legend(names, (name) => charts.forEach((one) => one.emphasize(name))), box);
  return charts;
}

function choice(label, values, onChange) {
  const select = make("select");
  for (const value of values) select.append(make("option", { value }, value));
  select.addEventListener("change", () => onChange());
  return { element: make("label", { hidden: values.length < 2 }, label, select), get value() { return select.value; },
    set value(value) { select.value = value; } };
}

// Where lines level off, their ends show more alone.
function partChoice(onChange) {
  const part = choice("Steps", ["all", "the second half"], onChange);
  part.of = (lines) => {
    if (part.value === "all") return lines;
    const half = Math.max(...lines.flatMap((line) => line.points.map(([step]) => step))) / 2;
    return lines.map((line) => ({ ...line, points: line.points.filter(([step]) => step >= half) }));
  };
  return part;
}

// The design that is looked at first: the best, or else one with a codec.
function foremost(designs) {
  const best = data.headline.verdicts.map((verdict) => verdict.design);
  return [...best, ...data.designs].find((name) => designs.includes(name) && name !== data.baseline) || designs[0];
}

// Of a figure of histograms, the tensor with the most values.
function largestTensor(figure) {
  const size = (group) => group.rows.reduce((sum, row) => sum + row[1], 0);
  return figure.groups.reduce((most, group) => (size(group) > size(most) ? group : most)).key[1];
}

// A line a design, of how many times as fast it is.
function speedups(figure, element, x, xName) {
  const lines = figure.groups.map((group) => lineOf(group, 0, 1));
  const one = chart({ label: figure.title, lines: () => lines, x, y: kKinds.speedup, xName,
    yName: "Times as fast as the fastest fp32" });
  element.append(legend(keyValues(figure, 0), one.emphasize), one);
}

const column = (figure, name) => figure.columns.indexOf(name);

const kDrawers = {
  designs(figure, element) {
    const rates = figure.columns.map((name) => /^(.*)_step_seconds at (.*)$/.exec(name)).filter(Boolean)
      .map(([whole, times, rate]) => ({ whole, times, rate }));
    const known = ([, name]) => column(figure, name) >= 0;
    const first = [
      ["Test accuracy", "test_accuracy", percent],
      ["Points from baseline", "accuracy_difference_points",
        (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(2)],
      ["Test loss", "test_loss", (value) => value.toFixed(4)],
      ["Traffic saved", "compression_ratio", times],
    ].filter(known);
    const last = [
      ["Bits pushed", "push_bits_per_value", (value) => significant(value)],
      ["Bits pulled", "pull_bits_per_value", (value) => significant(value)],
      ["Steps", "steps", whole], ["Runs", "runs", whole],
    ].filter(known);
    const byRate = rates.flatMap(({ whole: step, rate }) => [
      ["Step", step, duration], ["Speedup", `speedup at ${rate}`, times],
    ].filter(known));
    const shown = [...first, ...byRate, ...last];
    const head = [];
    if (byRate.length) {
      const above = [heading("", { colspan: String(first.length + 1) })];
      for (const { rate, times: kind } of rates) {
        const span = byRate.filter(([, name]) => name.endsWith(" at " + rate)).length;
        above.push(heading(`${rate}, ${kind}`, { colspan: String(span) }));
      }
      head.push(make("tr", { class: "top-row" }, ...above, heading("", { colspan: String(last.length) })));
    }
    head.push(make("tr", {}, heading("Design"), ...shown.map(([title]) => heading(title))));
    const winners = new Set(data.headline.verdicts.map((verdict) => verdict.design));
    const box = table(head, figure.groups.map((group) => [
      make("th", { scope: "row" }, breakable(group.key[0])),
      ...shown.map(([, name, format]) => {
        const value = group.rows[0][column(figure, name)];
        const cell = make("td", {}, value === null ? "–" : format(value));
        const [low, high] = ["lowest_accuracy", "highest_accuracy"].map((one) => group.rows[0][column(figure, one)]);
        if (name === "test_accuracy" && low != null) {
          cell.append(make("span", { class: "small", title: "The lowest and the highest of the runs" },
            `${(100 * low).toFixed(2)} to ${(100 * high).toFixed(2)}`));
        }
        return cell;
      }),
    ]));
    box.querySelectorAll("tbody tr").forEach((row, i) => {
      if (figure.groups.length > 1 && winners.has(figure.groups[i].key[0])) row.className = "best";
    });
    element.append(box);
  },

  "accuracy-for-bits"(figure, element) {
    const points = figure.groups.map((group) => lineOf(group, 0, 1));
    const onFront = figure.groups.filter((group) => group.rows[0][column(figure, "on_front")])
      .map((group) => [group.rows[0][0], group.rows[0][1]]).sort((a, b) => a[0] - b[0]);
    const front = { name: "front", style: { variable: "--quiet", dash: [2, 3] }, points: onFront };
    const one = chart({ label: figure.title, lines: () => [...(onFront.length > 1 ? [front] : []), ...points],
      x: kKinds.bits, y: kKinds.share, xName: "Bits per value, pushed and pulled", yName: "Test accuracy",
      marks: true, nearest: true, named: true });
    element.append(legend(keyValues(figure, 0), one.emphasize), one);
  },

  "accuracy-over-time": (figure, element) => panels(figure, element, {
    x: kKinds.time, y: kKinds.share, xName: "Training time", yName: "Test accuracy",
    marks: true, nearest: true, named: true, panelName: (rate, group) => `${rate}, ${group.key[1]}`,
  }),

  "step-time"(figure, element) {
    const parts = ["computation", "codec", "wire", "waiting", "other"]
      .filter((part) => column(figure, `${part}_seconds`) >= 0)
      .filter((part) => figure.groups.some((group) => group.rows[0][column(figure, `${part}_seconds`)] > 0));
    const list = make("ul", { class: "legend" });
    for (const part of parts) {
      list.append(make("li", { class: "fixed" }, make("span", { class: `key ${part}` }), part));
    }
    const scale = choice("Bars show", ["seconds", "shares of the step"], () => draw());
    const box = make("div", { class: "panels wide" });
    element.append(make("div", { class: "choices" }, scale.element), list, box);

    function row(group, longest, shares) {
      const values = parts.map((part) => group.rows[0][column(figure, `${part}_seconds`)] || 0);
      const total = values.reduce((sum, value) => sum + value, 0);
      const said = parts.map((part, i) => `${part} ${duration(values[i])}`).filter((text, i) => values[i] > 0);
      const bar = make("div", { class: "bar", role: "img", "aria-label": said.join(", "), title: said.join("\n") });
      parts.forEach((part, i) => {
        if (!values[i]) return;
        const piece = make("i", { class: part });
        piece.style.width = 100 * values[i] / (shares ? total : longest) + "%";
        bar.append(piece);
      });
      return make("div", { class: "bar-row" }, make("span", { class: "who" }, breakable(group.key[2])), bar,
        make("span", { class: "total" }, duration(total)));
    }

    function draw() {
      box.replaceChildren();
      for (const rate of keyValues(figure, 0)) {
        const groups = withKey(figure, 0, rate).filter((group) => !hidden.has(group.key[2]));
        const total = (group) => group.rows[0].reduce((sum, value) => sum + (value || 0), 0);
        if (!groups.length) continue;
        const longest = Math.max(...groups.map(total));
        const bars = make("div", { class: "bars" });
        for (const group of groups) bars.append(row(group, longest, scale.value !== "seconds"));
        box.append(make("div", { class: "panel" },
          make("h3", {}, rate === "as run" ? "As run, measured" : `${rate}, ${groups[0].key[1]}`), bars));
      }
    }
    redraws.push(draw);
    draw();
  },

  loss(figure, element) {
    const lines = figure.groups.map((group) => lineOf(group, 0, 1));
    const part = partChoice(() => one.redraw());
    const one = chart({ label: figure.title, lines: () => part.of(lines), x: kKinds.step, y: kKinds.loss,
      xName: "Step", yName: "Training loss" });
    element.append(make("div", { class: "choices" }, part.element), legend(keyValues(figure, 0), one.emphasize), one);
  },

  accuracy(figure, element) {
    const part = partChoice(() => charts.forEach((one) => one.redraw()));
    element.append(make("div", { class: "choices" }, part.element));
    const charts = panels(figure, element, {
      x: kKinds.step, y: kKinds.share, xName: "Step", yName: "Accuracy", part,
      panelName: (value) => (value === "test data" ? "on the test data" : "on training batches"),
    });
  },

  "bits-per-value": (figure, element) => panels(figure, element, {
    x: kKinds.step, y: kKinds.bits, xName: "Step", yName: "Bits per value",
    panelName: (value) => (value === "push" ? "push: sent by a worker" : "pull: received by a worker"),
  }),

  sensitivity(figure, element) {
    const box = make("div", { class: "panels" });
    const views = [
      ["Test accuracy", kKinds.share, [["test_accuracy", "--c0", "test accuracy"]]],
      ["Bits per value", kKinds.bits, [["push_bits_per_value", "--c0", "push"], ["pull_bits_per_value", "--c1", "pull"]]],
    ];
    for (const [title, kind, columns] of views) {
      const lines = figure.groups.flatMap((group, i) => columns.map(([name, variable, text]) => ({
        name: figure.groups.length > 1 ? `${text}, ${group.key[0]}` : text,
        style: { variable, dash: [[], [7, 4], [2, 3]][i % 3] },
        points: group.rows.map((row) => [row[0], row[column(figure, name)]]).filter((point) => point[1] !== null),
      }))).filter((line) => line.points.length);
      if (!lines.length) continue;
      const one = chart({ label: `${title} against s`, lines: () => lines, x: kKinds.s, y: kind,
        xName: "s", yName: title, marks: true, named: lines.length > 1 });
      box.append(make("div", { class: "panel" }, one));
    }
    element.append(box);
  },

  "speedup-over-workers": (figure, element) => speedups(figure, element, kKinds.workers, "Workers"),

  "speedup-over-rate": (figure, element) => speedups(figure, element, kKinds.rate, "Each node's link"),

  histograms(figure, element) {
    const designs = keyValues(figure, 0);
    const names = (design) => [...new Set(withKey(figure, 0, design).map((group) => group.key[1]))];
    const steps = keyValues(figure, 2).sort((a, b) => a - b);
    const design = choice("Design", designs, () => one.redraw());
    const tensor = choice("Tensor", [...new Set(designs.flatMap(names))], () => one.redraw());
    const step = choice("Step", steps, () => one.redraw());
    // What a codec does shows best in a large tensor, after some steps.
    design.value = foremost(designs);
    tensor.value = largestTensor(figure);
    step.value = steps[steps.length - 1];
    const lines = () => {
      const group = figure.groups.find(({ key }) =>
        key[0] === design.value && key[1] === tensor.value && key[2] === step.value);
      if (!group) return [];
      return [["before", "--before", 1], ["after", "--c1", .5]].map(([name, variable, width], i) => ({
        name, style: { variable, width },
        points: group.rows.map((row) => [row[0], row[i + 1] > 0 ? row[i + 1] : null]),
      }));
    };
    const one = chart({ label: figure.title, lines, x: kKinds.value, y: kKinds.count,
      xName: "Value", yName: "Count", bars: true });
    const list = make("ul", { class: "legend" });
    for (const [text, variable] of [["before: what was to be sent", "--before"], ["after: what is decoded", "--c1"]]) {
      const key = make("span", { class: "key" });
      key.style.background = `var(${variable})`;
      list.append(make("li", { class: "fixed" }, key, text));
    }
    element.append(make("div", { class: "choices" }, design.element, tensor.element, step.element), list, one);
  },

  residuals(figure, element) {
    const measures = { "95th percentile": 1, "root mean square": 2, "largest": 3 };
    const tensor = choice("Tensor", keyValues(figure, 0), () => one.redraw());
    const measure = choice("Magnitude", Object.keys(measures), () => one.redraw());
    const histograms = data.figures.find((other) => other.id === "histograms");
    const largest = histograms && largestTensor(histograms);
    if (keyValues(figure, 0).includes(largest)) tensor.value = largest;
    const lines = () => withKey(figure, 0, tensor.value)
      .map((group) => lineOf(group, 1, measures[measure.value]));
    const one = chart({ label: figure.title, lines, x: kKinds.step, y: kKinds.size,
      xName: "Step", yName: "Residual" });
    element.append(make("div", { class: "choices" }, tensor.element, measure.element),
      legend(keyValues(figure, 1), one.emphasize), one);
  },

  layers(figure, element) {
    const designs = keyValues(figure, 0);
    const place = make("div");
    const design = choice("Design", designs, () => draw());
    design.value = foremost(designs);
    element.append(make("div", { class: "choices" }, design.element), place);
    const formats = { values: whole, bits_per_value: (value) => significant(value), ratio: times,
      relative_error: (value) => significant(value), gradient_rms: tiny };
    const titles = { values: "Values", bits_per_value: "Bits per value", ratio: "Ratio",
      relative_error: "Relative error", gradient_rms: "Gradient, rms" };
    function draw() {
      const head = make("tr", {}, heading("Tensor"), heading("Kind", { class: "text" }),
        ...figure.columns.map((name) => heading(titles[name])), heading("Codec", { class: "text" }));
      place.replaceChildren(table([head], withKey(figure, 0, design.value).map((group) => [
        make("th", { scope: "row" }, group.key[1]), make("td", { class: "text" }, group.key[2]),
        ...figure.columns.map((name, i) =>
          make("td", {}, group.rows[0][i] === null ? "–" : formats[name](group.rows[0][i]))),
        make("td", { class: "text" }, group.key[3]),
      ])));
    }
    draw();
  },
};

function drawFigure(figure) {
  const id = `figure-${figure.id}`;
  const element = make("section", { class: "figure", id, "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title` }, figure.title), make("p", { class: "hint" }, figure.hint));
  document.getElementById("figures").append(element);
  kDrawers[figure.id](figure, element);
  element.append(dataLinks(figure));
  const charts = element.querySelectorAll(".chart").length;
  if (charts === 1) element.classList.add("alone");
}

// Two figures of one chart each stand side by side where there is room.
function pair() {
  const all = [...document.querySelectorAll(".figure")];
  for (let i = 0; i + 1 < all.length; ++i) {
    if (!all[i].matches(".alone") || !all[i + 1].matches(".alone")) continue;
    all[i].classList.add("half");
    all[++i].classList.add("half");
  }
}

// --- The page's head ---

function drawHead() {
  const { title, detail, verdicts } = data.headline;
  document.title = `${title} – Tersewire report`;
  const heading = document.getElementById("title");
  heading.textContent = together(title);
  heading.classList.toggle("long", title.length > 60);
  document.getElementById("detail").textContent = together(detail);
  document.getElementById("version").textContent = `tersewire ${data.version}`;
  if (data.footnote) document.getElementById("footnote").textContent = data.footnote;
  for (const [name, value] of data.job) {
    document.getElementById("job").append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  }
  const notes = document.getElementById("notes");
  notes.hidden = !data.notes.length;
  for (const note of data.notes) notes.append(make("p", {}, note));
  for (const verdict of verdicts) {
    const item = make("li", {},
      make("p", { class: "rate" }, make("span", {}, verdict.rate), make("span", {}, verdict.times)),
      make("p", { class: "name" }, breakable(verdict.design)));
    if (verdict.gain) item.append(make("p", { class: "gain" }, verdict.gain));
    if (verdict.detail) item.append(make("p", { class: "more" }, together(verdict.detail)));
    document.getElementById("verdicts").append(item);
  }
}

// --- Light and dark: as the system has it, until someone chooses ---

const system = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;

function setTheme(theme) {
  root.dataset.theme = theme;
  root.style.colorScheme = theme;
  const button = document.getElementById("theme");
  button.replaceChildren(theme === "dark" ? "Light" : "Dark");
  button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
  redraw();
}
const theme = () => chosen || (system.matches ? "dark" : "light");

document.getElementById("theme").addEventListener("click", () => {
  chosen = theme() === "dark" ? "light" : "dark";
  setTheme(chosen);
});
system.addEventListener("change", () => setTheme(theme()));
window.addEventListener("beforeprint", () => setTheme("light"));
window.addEventListener("afterprint", () => setTheme(theme()));

setTheme(theme());
drawHead();
data.figures.forEach(drawFigure);
pair();
