// Charts of the page: a line over time, its highest value by name, and the time that it covers.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, TALLEST] = [300, 60, 56]; // of the viewBox, and of the highest value
const GAP_S = 30; // a longer time without a point is not known, and not drawn
const TICKS = [0.1, 1, 10, 60, 600];
const LEAST_S = 0.05; // the lower end of a chart of delays
const AGO = (since_s) => (since_s < 90 ? `${Math.round(since_s)} s` : `${Math.round(since_s / 60)} min`);

function drawn(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// Delays go from a tenth of a second to minutes: equal factors are equal heights. Counts are drawn as they are.
const heights = (highest, isDelay) => (value) => {
  if (!isDelay) return highest ? (value / highest) * TALLEST : 0;
  return value <= LEAST_S ? 0 : (Math.log(value / LEAST_S) / Math.log(Math.max(highest / LEAST_S, 2))) * TALLEST;
};

// Runs of points without a gap; one place for each unit of width, and the highest of what falls into it.
function runsOf(times, values, now) {
  const wide = Math.max(now - times[0], 1e-9);
  const runs = [];
  let last = -Infinity;
  for (const [index, value] of values.entries()) {
    if (value === null) continue;
    if (times[index] - last > GAP_S) runs.push(new Map());
    last = times[index];
    const x = Math.round(((last - times[0]) / wide) * WIDTH);
    const run = runs.at(-1);
    run.set(x, Math.max(run.get(x) ?? 0, value));
  }
  return runs;
}

const line = (run, height) => [...run].map(([x, value], at) => `${at ? "L" : "M"}${x} ${(HEIGHT - height(value)).toFixed(1)}`).join("");

// Lines at round values, with these beside: a scale of equal factors can not be read without.
function drawTicks(svg, height, highest) {
  const ticks = TICKS.filter((value) => value < highest);
  const labels = keep(svg.parentElement, ["", ...ticks], () => made("span", "tick")).slice(1);
  ticks.forEach((value, index) => {
    const y = HEIGHT - height(value);
    svg.append(drawn("path", { class: "scale", d: `M0 ${y}H${WIDTH}` }));
    labels[index].style.top = `${(100 * y) / HEIGHT}%`;
    labels[index].ariaHidden = "true";
    setText(labels[index], value < 60 ? `${value} s` : `${Math.round(value / 60)} min`);
  });
}

// `figure` has a caption, an svg and a place for the axis; `shown` makes text of a value, `budget` is a limit to draw.
function draw(figure, times, values, { label, shown, current, now, isDelay = false, budget = null }) {
  const svg = figure.querySelector("svg");
  const known = values.filter((value) => value !== null);
  const highest = Math.max(...known, budget ?? 0, 0);
  const height = heights(highest, isDelay);
  const most = values.indexOf(Math.max(...known));
  const [top, since] = figure.querySelectorAll(".axis span");
  const worst = known.length && Math.max(...known) > 0 ? `highest ${shown(values[most])} at ${moment(times[most])}` : "";
  const over = known.length > 1 ? AGO(now - times[0]) : "";
  setText(top, worst);
  setText(since, over && `${over} ago to now`);
  setText(figure.querySelector("output"), shown(current));
  const said = known.length ? `now ${shown(current)}, lowest ${shown(Math.min(...known))}, ${worst || "highest 0"}` : "nothing yet";
  svg.setAttribute("aria-label", `${label}${over && ` over ${over}`}: ${said}`);
  svg.replaceChildren();
  for (const run of known.length ? runsOf(times, values, now) : []) {
    const [path, [first], last] = [line(run, height), [...run.keys()], [...run.keys()].at(-1)];
    svg.append(drawn("path", { class: "area", d: `${path}L${last} ${HEIGHT}L${first} ${HEIGHT}Z` }));
    svg.append(drawn("path", { class: "edge", d: path }));
  }
  drawTicks(svg, height, isDelay ? highest : 0);
  if (budget !== null) {
    const y = HEIGHT - height(budget);
    svg.append(drawn("path", { class: "budget", d: `M0 ${y}H${WIDTH}` }));
  }
}
