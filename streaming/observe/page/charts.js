// Charts of the page: a line over time, with the scale and the time that it covers.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300; // of the viewBox
const AGO = (since_s) => (since_s < 90 ? `${Math.round(since_s)} s` : `${Math.round(since_s / 60)} min`);

// The top of a chart: a lone peak, the wait for the first build say, must not flatten all the rest.
function topOf(known) {
  const rising = [...known].sort((one, other) => one - other);
  const usual = rising[Math.floor(rising.length * 0.95)] ?? 0;
  return Math.max(Math.min(rising.at(-1) ?? 0, usual * 2), 1e-9);
}

// One place for each unit of width, and the highest of what falls into it: an hour has points of a second and of ten.
function placed(times, values) {
  const first = times[0];
  const wide = Math.max(times.at(-1) - first, 1e-9);
  const places = new Map();
  for (const [index, value] of values.entries()) {
    const x = Math.round(((times[index] - first) / wide) * WIDTH);
    places.set(x, Math.max(places.get(x) ?? 0, value ?? 0));
  }
  return [...places];
}

function pathOf(places, highest) {
  return places
    .map(([x, value], index) => `${index ? "L" : "M"}${x} ${(58 - Math.min(value / highest, 1) * 54).toFixed(1)}`)
    .join("");
}

// What the line says to those who don't see it.
function chartText(times, known, label, shown, now) {
  if (!known.length) return `${label}: nothing yet`;
  const over = known.length > 1 ? ` over ${AGO(times.at(-1) - times[0])}` : "";
  return `${label}${over}: now ${shown(now)}, lowest ${shown(Math.min(...known))}, highest ${shown(Math.max(...known))}`;
}

// `figure` has a caption, an svg and a place for the axis; `shown` makes text of a value.
function draw(figure, times, values, label, shown) {
  const svg = figure.querySelector("svg");
  const known = values.filter((value) => value !== null);
  const highest = topOf(known);
  svg.setAttribute("aria-label", chartText(times, known, label, shown, values.at(-1) ?? 0));
  svg.replaceChildren();
  const [top, since] = figure.querySelectorAll(".axis span");
  top.textContent = known.length ? `top ${shown(highest)}` : "";
  since.textContent = known.length > 1 ? `${AGO(times.at(-1) - times[0])} ago to now` : "";
  figure.querySelector("output").textContent = values.length ? shown(values.at(-1) ?? 0) : "";
  if (!known.length) return;
  const line = pathOf(placed(times, values), highest);
  for (const [kind, path] of [["area", `${line}L${WIDTH} 60L0 60Z`], ["edge", line]]) {
    const element = document.createElementNS(SVG, "path");
    element.setAttribute("class", kind);
    element.setAttribute("d", path);
    svg.append(element);
  }
}
