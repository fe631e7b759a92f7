// Numbers with their units, designs with their colours, and charts of them. Half of one script:
// report.js is the rest.

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const spoken = document.getElementById("spoken");
const kColours = 8;

// --- Elements ---

function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") element.className = value;
    else if (key in element && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// A design's name may be broken where its parts end.
function breakable(text) {
  const parts = text.split(/(?<=[,:=/])/);
  return make("span", {}, ...parts.flatMap((part, i) => (i ? [make("wbr"), part] : [part])));
}

const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

// --- Numbers, with their units ---

// A number and its unit stay on one line.
const together = (text) => text.replace(/(\d) (?=[A-Za-zµ%])/g, "$1\u00a0");

const significant = (value, digits = 3) =>
  value.toLocaleString("en", { maximumSignificantDigits: digits });
const whole = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });

function duration(seconds) {
  if (seconds < 1e-3) return significant(seconds * 1e6) + " µs";
  if (seconds < 1) return significant(seconds * 1e3) + " ms";
  if (seconds < 60) return significant(seconds) + " s";
  // What is shown is rounded before it is split.
  const all = Math.round(seconds);
  const rest = all % 60;
  if (all < 3600) return Math.floor(all / 60) + " min" + (rest ? ` ${rest} s` : "");
  const minutes = Math.round(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const over = minutes % 60;
  if (hours < 48) return hours + " h" + (over ? ` ${over} min` : "");
  return significant(seconds / 86400) + " days";
}

const percent = (value) => (100 * value).toLocaleString("en", { maximumFractionDigits: 2 }) + " %";
const times = (value) => significant(value, value < 10 ? 2 : 3) + "×";
const rate = (value) => (value >= 1e9 ? significant(value / 1e9) + " Gbit/s"
  : value >= 1e6 ? significant(value / 1e6) + " Mbit/s" : significant(value / 1e3) + " kbit/s");
const tiny = (value) =>
  value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)
    ? value.toExponential(1).replace("e", "e") : significant(value);
const bits = (value) => significant(value) + (value === 1 ? " bit" : " bits");

// --- Designs: their colours, and which of them are shown ---

const hidden = new Set();
const redraws = [];
const redraw = () => redraws.forEach((again) => again());

function styleOf(name) {
  if (name === data.baseline) return { variable: "--base", dash: [] };
  const others = data.designs.filter((design) => design !== data.baseline);
  const place = Math.max(0, others.indexOf(name));
  const turn = Math.floor(place / kColours);
  return { variable: `--c${place % kColours}`, dash: [[], [7, 4], [2, 3], [9, 3, 2, 3]][turn % 4] };
}

function swatch(name) {
  const style = styleOf(name);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [key, value] of Object.entries({ width: 22, height: 10, "aria-hidden": "true" })) {
    svg.setAttribute(key, value);
  }
  for (const [key, value] of Object.entries({ x1: 0, x2: 22, y1: 5, y2: 5, "stroke-width": 3 })) {
    line.setAttribute(key, value);
  }
  line.style.stroke = `var(${style.variable})`;
  line.setAttribute("stroke-dasharray", style.dash.join(" "));
  svg.append(line);
  return svg;
}

// One button a design, if there are several; `emphasize` is told which one is pointed at.
function legend(names, emphasize) {
  const list = make("ul", { class: "legend" });
  if (names.length < 2) return list;
  for (const name of names) {
    const button = make("button", { type: "button", title: "Show or hide" }, swatch(name), breakable(name));
    const show = () => button.setAttribute("aria-pressed", String(!hidden.has(name)));
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      redraw();
    });
    for (const event of ["mouseenter", "focus"]) {
      button.addEventListener(event, () => emphasize(name));
    }
    for (const event of ["mouseleave", "blur"]) {
      button.addEventListener(event, () => emphasize(null));
    }
    redraws.push(show);
    show();
    list.append(make("li", {}, button));
  }
  return list;
}

// --- Scales ---

function extent(values) {
  const finite = values.filter((value) => value !== null);
  return [Math.min(...finite), Math.max(...finite)];
}

const kMoments = [1e-3, 2e-3, 5e-3, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800,
  3600, 7200, 18000, 36000, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];

const kPowersOfTwo = Array.from({ length: 17 }, (_, power) => 2 ** power);

function decades(low, high) {
  const marks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
    for (const digit of [1, 2, 5]) marks.push(digit * 10 ** power);
  }
  return marks;
}

// Those of `marks` that a logarithmic axis has room for, `space` pixels apart; of decimal numbers the
// powers of ten where they suffice.
function logarithmicMarks(marks, low, high, length, space, decimal) {
  const perUnit = length / Math.log(high / low);
  const inside = marks.filter((mark) => mark >= low && mark <= high);
  const powers = inside.filter((mark) => Math.abs(Math.log10(mark) % 1) < 1e-9);
  const close = (list) => list.some((mark, i) => i > 0 && Math.log(mark / list[i - 1]) * perUnit < space);
  if (!close(inside)) return inside;
  if (decimal && powers.length > 1 && !close(powers)) return powers;
  const kept = [];
  for (const mark of inside) {
    if (!kept.length || Math.log(mark / kept[kept.length - 1]) * perUnit >= space) kept.push(mark);
  }
  return kept;
}

// `kind`: what an axis or a value is: {format, log: "never" | "wide" | "always", marks}
const kKinds = {
  step: { format: whole, log: "never" },
  time: { format: duration, log: "wide", marks: () => kMoments, space: 58 },
  share: { format: percent, log: "never", alone: .005 },
  bits: { format: bits, axis: (value) => significant(value), log: "wide" },
  loss: { format: (value) => significant(value), log: "wide" },
  size: { format: tiny, log: "wide" },
  value: { format: tiny, log: "never" },
  count: { format: whole, log: "always" },
  s: { format: (value) => significant(value), log: "never" },
  workers: { format: whole, log: "always", marks: () => kPowersOfTwo },
  rate: { format: rate, log: "always", space: 76 },
  speedup: { format: times, log: "wide" },
};

// How `values` lie on an axis with `room` beside them, a share of their range.
function scaleOf(kind, values, room) {
  const positive = values.filter((value) => value > 0);
  const [least, most] = extent(positive);
  const wide = least > 0 && most / least > (kind === kKinds.time ? 6 : 25);
  if (positive.length && (kind.log === "always" || (kind.log === "wide" && wide))) {
    const factor = Math.max(1.08, (most / least) ** room);
    return { distr: 3, log: 10, range: [least / factor, most * factor], logarithmic: true };
  }
  const [low, high] = extent(values);
  const more = high > low ? (high - low) * room : Math.abs(low) * (kind.alone || .1) || 1;
  // Nothing goes below 0 but what has values there.
  return { range: [low >= 0 ? Math.max(0, low - more) : low - more, high + more] };
}

// --- Charts ---

// Draws `lines`, [{name, style, points: [[x, y], ...]}], into a new element and returns it.
function chart({ label, lines, x, y, xName, yName, marks = false, nearest = false, bars = false, named = false }) {
  const plot = make("div", { class: "plot", tabindex: "0", role: "group" });
  const element = make("div", { class: "chart" });
  element.append(make("span", { class: "axis-name" }, yName), plot,
    make("span", { class: "axis-name below" }, xName));
  let drawing = null;
  let at = -1;

  const visible = () => lines().filter((line) => !hidden.has(line.name) && line.points.length);

  function axis(kind, scale, vertical) {
    const result = {
      stroke: colour("--quiet"),
      font: "12px system-ui, sans-serif",
      grid: { stroke: colour("--grid"), width: 1 },
      ticks: { show: false },
      gap: 6,
      values: (u, marksShown) => marksShown.map((mark) => (kind.axis || kind.format)(mark)),
    };
    if (vertical) {
      result.space = 34;
      result.size = (u, shown) => 14 + 6.6 * Math.max(3, ...(shown || []).map((text) => text.length));
    } else {
      result.size = 28;
      result.space = kind.space || 62;
    }
    if (scale.logarithmic) {
      result.filter = (u, marksShown) => marksShown;
      result.splits = (u, index, low, high) => logarithmicMarks(
        kind.marks ? kind.marks() : decades(low, high), low, high,
        (vertical ? u.bbox.height : u.bbox.width) / devicePixelRatio, result.space, !kind.marks);
    } else if (kind === kKinds.step) {
      result.incrs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7];
    }
    return result;
  }

  function series(line) {
    const stroke = line.style.fill ? undefined : colour(line.style.variable);
    if (bars) {
      return {
        label: line.name,
        fill: colour(line.style.variable),
        paths: uPlot.paths.bars({ size: [line.style.width, 100] }),
        points: { show: false },
      };
    }
    return {
      label: line.name,
      stroke,
      width: line.name === data.baseline ? 2.5 : 2,
      dash: line.style.dash,
      spanGaps: true,
      points: { show: (marks && line.points.length < 12) || line.points.length < 3, size: 8, fill: stroke, stroke: colour("--card"), width: 1 },
    };
  }

  function draw() {
    clear();
    if (drawing) drawing.destroy();
    drawing = null;
    const shown = visible();
    plot.setAttribute("aria-label", `Chart: ${label}. ` +
      (shown.length ? "Arrow keys move along it; the table below has its data." : "Everything is hidden."));
    if (!shown.length || !plot.clientWidth) return;
    const xScale = scaleOf(x, shown.flatMap((line) => line.points.map((point) => point[0])), marks ? .1 : .01);
    const yScale = scaleOf(y, shown.flatMap((line) => line.points.map((point) => point[1])), .06);
    const positive = (value) => (yScale.logarithmic && !(value > 0) ? null : value);
    drawing = new uPlot({
      width: plot.clientWidth,
      height: plot.clientHeight,
      legend: { show: false },
      cursor: { points: { show: false }, drag: { x: false, y: false }, y: false, x: !nearest },
      focus: { alpha: .15 },
      scales: { x: { time: false, ...xScale }, y: yScale },
      axes: [axis(x, xScale, false), axis(y, yScale, true)],
      series: [{}, ...shown.map(series)],
      hooks: { setCursor: [(u) => point(u, shown)], draw: named ? [(u) => writeNames(u, shown)] : [] },
    }, uPlot.join(shown.map((line) => [line.points.map((p) => p[0]), line.points.map((p) => positive(p[1]))])), plot);
    drawing.over.addEventListener("mouseleave", clear);
  }

  // Beside each line's last point, where nothing is in the way.
  function writeNames(u, shown) {
    const ratio = devicePixelRatio;
    const { ctx, bbox } = u;
    const height = 13 * ratio;
    const ends = shown.map((line) => {
      const [px, py] = line.points[line.points.length - 1];
      return { line, left: u.valToPos(px, "x", true), top: u.valToPos(py, "y", true) };
    });
    const taken = shown.flatMap((line) => line.points.map(([px, py]) => {
      const left = u.valToPos(px, "x", true), top = u.valToPos(py, "y", true);
      return { left: left - 5 * ratio, right: left + 5 * ratio, top: top - 5 * ratio, bottom: top + 5 * ratio };
    }));
    ctx.save();
    ctx.font = `${11.5 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    for (const end of ends) {
      const name = end.line.name.length > 24 ? end.line.name.slice(0, 23) + "…" : end.line.name;
      const width = ctx.measureText(name).width;
      const gap = 10 * ratio;
      const places = [[end.left + gap, end.top], [end.left - gap - width, end.top],
        [end.left - width / 2, end.top - height], [end.left - width / 2, end.top + height]];
      for (const [left, top] of places) {
        const box = { left: left - 4 * ratio, right: left + width + 4 * ratio, top: top - height / 2, bottom: top + height / 2 };
        const free = box.left >= bbox.left && box.right <= bbox.left + bbox.width &&
          box.top >= bbox.top && box.bottom <= bbox.top + bbox.height &&
          taken.every((other) => box.left > other.right || box.right < other.left ||
            box.top > other.bottom || box.bottom < other.top);
        if (!free) continue;
        ctx.fillStyle = colour(end.line.style.variable);
        ctx.fillText(name, left, top);
        taken.push(box);
        break;
      }
    }
    ctx.restore();
  }

  function clear() {
    plot.querySelectorAll(".tip, .dot").forEach((old) => old.remove());
  }

  // What is to be said at a place: of one point, or of every line.
  function found(u, shown, left, top) {
    const places = shown.map((line) => {
      let best = null;
      for (const [px, py] of line.points) {
        if (py === null) continue;
        const dx = u.valToPos(px, "x") - left;
        const dy = nearest ? u.valToPos(py, "y") - top : 0;
        const far = Math.hypot(dx, dy);
        if (!best || far < best.far) best = { line, x: px, y: py, far };
      }
      return best;
    }).filter(Boolean);
    places.sort((a, b) => (nearest ? a.far - b.far : b.y - a.y));
    return nearest ? places.slice(0, 1) : places.filter((place) => place.far < 40);
  }

  function point(u, shown) {
    clear();
    const { left, top } = u.cursor;
    if (left < 0 || left == null) return;
    const places = found(u, shown, left, top);
    if (!places.length) return;
    const tip = make("div", { class: "tip" }, make("b", {}, `${xName}: ${x.format(places[0].x)}`));
    for (const { line, x: px, y: py } of places) {
      const mark = make("i");
      mark.style.background = `var(${line.style.variable})`;
      tip.append(make("span", {}, mark, make("em", {}, line.name), make("u", {}, y.format(py))));
      if (bars) continue;
      const dot = make("div", { class: "dot" });
      dot.style.background = `var(${line.style.variable})`;
      dot.style.left = u.over.offsetLeft + u.valToPos(px, "x") + "px";
      dot.style.top = u.over.offsetTop + u.valToPos(py, "y") + "px";
      plot.append(dot);
    }
    plot.append(tip);
    const place = u.over.offsetLeft + left;
    const onLeft = place + 16 + tip.offsetWidth > plot.clientWidth;
    tip.style.left = Math.max(0, onLeft ? place - 14 - tip.offsetWidth : place + 14) + "px";
    tip.style.top = Math.max(0, Math.min(plot.clientHeight - tip.offsetHeight - 20, 8)) + "px";
  }

  // Every place that a line has something at, left to right.
  function stops() {
    const points = visible().flatMap((line) => line.points.map(([px, py]) => ({ name: line.name, px, py })))
      .filter((stop) => stop.py !== null).sort((a, b) => a.px - b.px);
    return nearest ? points : points.filter((stop, i) => i === 0 || stop.px !== points[i - 1].px);
  }

  plot.addEventListener("keydown", (event) => {
    const all = stops();
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 };
    if (event.key === "Escape") return clear();
    if (!(event.key in moves) || !drawing || !all.length) return;
    event.preventDefault();
    at = Math.min(all.length - 1, Math.max(0, moves[event.key]));
    drawing.setCursor({ left: drawing.valToPos(all[at].px, "x"), top: drawing.valToPos(all[at].py, "y") });
    const tip = plot.querySelector(".tip");
    if (tip) spoken.textContent = [...tip.children].map((part) => part.innerText).join("; ");
  });
  plot.addEventListener("blur", clear);
  new ResizeObserver(draw).observe(plot);
  redraws.push(draw);
  element.emphasize = (name) => {
    if (!drawing) return;
    const index = drawing.series.findIndex((one, i) => i > 0 && one.label === name);
    drawing.setSeries(index > 0 ? index : null, { focus: true });
  };
  element.redraw = draw;
  return element;
}
