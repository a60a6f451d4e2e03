// The last hour: the service's conditions as a strip in colours, with a mark for each event, and the same as a list.
"use strict";

const HOUR_S = 3600;
const NEWEST = 3;
const LEAST_SHOWN_S = 1;
const AWAY = "no answer";
// Where a process was not there, nothing came out; before the first event nothing is known.
const STOPPED = "not running";
const classOf = (condition) => condition.replaceAll(" ", "-");
const MARKS = {
  started: "M4 0L-4 -5V5Z", // a triangle
  ended: "M-4 -4H4V4H-4Z", // a square
  "taken over": "M0 -5L5 0L0 5L-5 0Z", // a diamond
  completed: "M-5 0L-2 4L5 -4L4 -5L-2 1L-4 -1Z", // a tick
  request: "M-3 0A3 3 0 1 0 3 0A3 3 0 1 0 -3 0Z", // a dot
  pause: "M-4 -4H-1V4H-4ZM1 -4H4V4H1Z", // two bars
  fault: "M-1.5 -5H1.5L1 1H-1ZM-1.5 2.5H1.5V5H-1.5Z", // an exclamation mark
};

const markOf = ({ kind, code, text }) => {
  if (kind === "condition") return code === null ? null : "fault";
  return kind === "request" && text.startsWith("pause") ? "pause" : kind;
};

function eventText({ kind, text, condition, code, job }) {
  if (kind === "started") return "this process started";
  if (kind === "ended") return `the process before ${text}`;
  if (kind === "taken over") return `took over ${text}`;
  if (kind === "completed") return `${job} is complete: all rows are read, changes follow`;
  if (kind === "condition") return text ? `${condition}: ${text}` : condition;
  return code === null || text.includes(code) ? `requested: ${text}` : `${text}: refused, ${code}`;
}

// Spans [from, to, condition], oldest first; what is not known is left out.
function spansOf(events, now, isAway) {
  const spans = [];
  let [from, condition] = [0, null];
  const close = (at) => {
    if (condition !== null && at > now - HOUR_S) spans.push([Math.max(from, now - HOUR_S), at, condition]);
  };
  for (const event of events) {
    const next = event.kind === "ended" ? STOPPED : event.condition;
    if (next === null) continue;
    close(event.at);
    [from, condition] = [event.at, next];
  }
  if (!isAway) close(now);
  else if (answered !== null) {
    close(answered);
    spans.push([Math.max(answered, now - HOUR_S), now, AWAY]);
  }
  return spans;
}

const minutes = (value) => (value < 60 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);
const across = (at, now) => `${(100 * Math.min(Math.max((at - (now - HOUR_S)) / HOUR_S, 0), 1)).toFixed(2)}%`;

function showStrip(spans, events, now) {
  const strip = byId("strip");
  const bands = spans.map(([from, to, condition]) => {
    const wide = `${Math.max((100 * (to - from)) / HOUR_S, 0.15).toFixed(2)}%`;
    return drawn("rect", { x: `${Math.min(parseFloat(across(from, now)), 100 - parseFloat(wide))}%`, width: wide, y: 16, height: 18, class: `band ${classOf(condition)}` });
  });
  const marks = events.filter((event) => event.at > now - HOUR_S && markOf(event) !== null).map((event) => {
    const mark = drawn("svg", { x: across(event.at, now), y: 8, overflow: "visible", class: `mark ${markOf(event)}` });
    const title = drawn("title", {});
    title.textContent = `${moment(event.at)} ${eventText(event)}`;
    mark.append(title, drawn("path", { d: MARKS[markOf(event)] }));
    return mark;
  });
  const totals = new Map();
  for (const [from, to, condition] of spans) totals.set(condition, (totals.get(condition) ?? 0) + to - from);
  const parts = [...totals].filter(([, lasted]) => lasted >= LEAST_SHOWN_S).map(([condition, lasted]) => [condition, minutes(lasted)]);
  strip.setAttribute("aria-label", `Conditions of the last hour: ${parts.map((part) => part.join(" ")).join(", ") || "not known"}`);
  strip.replaceChildren(drawn("rect", { x: 0, width: "100%", y: 16, height: 18, class: "band" }), ...bands, ...marks);
  const axis = byId("strip-axis").children;
  [HOUR_S, HOUR_S / 2, 0].forEach((ago, index) => setText(axis[index], ago ? moment(now - ago).slice(0, -3) : `now, ${moment(now).slice(0, -3)}`));
  const items = keep(byId("legend"), parts.map(([condition]) => condition), () => {
    const item = made("li");
    item.append(made("i"), made("span"));
    return item;
  });
  parts.forEach(([condition, lasted], index) => {
    items[index].firstElementChild.className = `swatch ${classOf(condition)}`;
    setText(items[index].lastElementChild, `${condition} ${lasted}`);
  });
}

function showEvents(place, events) {
  const keyOf = (event) => `${event.at} ${event.kind} ${event.text} ${event.job}`;
  const items = keep(place, events.map(keyOf), () => {
    const item = made("li");
    item.append(made("time"), made("span"));
    return item;
  });
  events.forEach((event, index) => {
    const [time, text] = items[index].children;
    setText(time, moment(event.at));
    setText(text, eventText(event));
    text.className = event.code === null ? "" : "late";
  });
}

function showHour(events, now, isAway = false) {
  showStrip(spansOf(events, now, isAway), events, now);
  const newest = [...events].reverse();
  showEvents(byId("newest"), newest.slice(0, NEWEST));
  const [summary, list] = byId("earlier").children;
  byId("earlier").hidden = newest.length <= NEWEST;
  setText(summary, `${number(Math.max(newest.length - NEWEST, 0))} earlier`);
  showEvents(list, newest.slice(NEWEST));
}
