// The status page: asks the API every second and draws what it says. No library, nothing from elsewhere.
"use strict";

const EVERY_MS = 1000;
const HELD_S = 10; // what lasts less is a transaction as others are
const byId = (id) => document.getElementById(id);
const cards = new Map();
let status = null;

const number = (value) => Math.round(value).toLocaleString("en");
const seconds = (value) => {
  if (value === null || value === undefined) return "–";
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(value % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

// Asks for the token. Resolves to whether one was given.
function login(why = "") {
  const dialog = byId("login");
  byId("login-why").textContent = why;
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "given" && byId("token").value !== "";
      if (given) sessionStorage.setItem("token", byId("token").value);
      byId("token").value = "";
      dialog.returnValue = "";
      resolve(given);
    }, { once: true });
  });
}

// A request that changes something, or costs: with the token, which is asked for where it lacks or is wrong.
async function change(path, method, content) {
  const options = { method };
  if (content) Object.assign(options, { body: JSON.stringify(content), headers: { "Content-Type": "application/json" } });
  if (!sessionStorage.getItem("token") && !(await login())) throw new Error("nothing was sent: no token");
  try {
    return await ask(path, options);
  } catch (problem) {
    if (problem.status !== 401 || !(await login("That is not the service's token."))) throw problem;
    return ask(path, options);
  }
}

async function ask(path, options = {}) {
  const answer = await fetch(`api/v1/${path}`, { ...options, headers: { ...headers(), ...options.headers } });
  const body = await answer.json().catch(() => ({ found: answer.statusText, next_step: "" }));
  if (!answer.ok) {
    const problem = new Error(body.found ? `${body.found}; ${body.next_step}` : `status ${answer.status}`);
    problem.status = answer.status;
    throw problem;
  }
  return body;
}

function setCondition(name, text, reason = null) {
  const shown = byId("condition");
  shown.className = `condition ${name.replaceAll(" ", "-")}`;
  if (shown.textContent !== text) shown.textContent = text;
  byId("reason").hidden = !reason;
  if (!reason) return;
  byId("reason-code").textContent = reason.where ? `${reason.code} at ${reason.where}` : reason.code;
  byId("reason-found").textContent = `Found ${reason.found}; expected ${reason.expected}.`;
  byId("reason-next").textContent = `Next: ${reason.next_step}.`;
}

// Not ready, but for a start: for how long barriers have not come out.
function conditionText(now) {
  if (now.ready || now.batch_age_s === null || now.condition === "stopping") return now.condition;
  return `${now.condition}, no batch for ${seconds(now.batch_age_s)}`;
}

const late = (age) => age !== null && age > status.late_s;

// Of rows without a key nothing is kept.
function replicaFacts() {
  if (!status.vnode_count) return [];
  return [
    ["replica rows", number(status.replica_rows), "rows in the base"],
    ["log rows", number(status.log_rows), "changes that wait to be compacted into the base"],
  ];
}

function showFacts() {
  const facts = [
    ["barrier", seconds(status.barrier_age_s), "age of the last barrier in the outputs", late(status.barrier_age_s)],
    ["latency p50", seconds(status.latency.p50_s), "barrier injected to readable, last minute"],
    ["latency p99", seconds(status.latency.p99_s), "barrier injected to readable, last minute"],
    ...replicaFacts(),
    ["lanes", status.lanes, status.vnode_count ? `${status.vnode_count} vnodes` : "of upstream partitions"],
    ["parked", number(status.parked), "records at fault since the start"],
  ];
  const copy = status.initial;
  if (copy !== null) {
    const [done, of, what] = copy.sorted ? [copy.sorted, copy.copied, "sorted"] : [copy.copied, copy.of, "copied"];
    const value = of ? `${Math.floor((100 * done) / of)} %` : number(done);
    facts.unshift([what, value, `${number(done)} rows of the table that the replica starts from`]);
  }
  const reading = status.reading;
  if (reading !== null) {
    const left = reading.paused ? "paused" : `${seconds(reading.seconds_left)} left`;
    const waiting = `${number(reading.waiting_rows)} wait for their changes`;
    const title = `${number(reading.rows)} of ${number(reading.of)} rows of the database, ${waiting}, ${left}`;
    const share = reading.of ? `${Math.floor((100 * reading.rows) / reading.of)} %` : number(reading.rows);
    facts.unshift(["read", share, reading.trouble ?? title, reading.trouble !== null]);
  }
  const shown = facts.map(([label, value, title, isLate]) => {
    const box = document.createElement("div");
    box.title = title;
    box.classList.toggle("late", Boolean(isLate));
    const name = document.createElement("div");
    name.className = "label";
    name.textContent = label;
    const figure = document.createElement("div");
    figure.className = "value";
    figure.textContent = value;
    box.append(name, figure);
    return box;
  });
  byId("facts").replaceChildren(...shown);
}

function showPartitions() {
  const rows = status.partitions.map((each) => {
    const row = document.createElement("tr");
    const held = each.held_s !== null && each.held_s > HELD_S;
    row.title = held ? `an open transaction holds back ${number(each.unstable)} records` : "";
    const open = held ? seconds(each.held_s) : "–";
    const kept = seconds(each.margin_s);
    const cells = [each.partition, each.barrier ?? "none yet", seconds(each.age_s), each.barriers_waiting, open, kept];
    for (const [index, text] of cells.entries()) {
      const cell = document.createElement("td");
      cell.textContent = text;
      cell.classList.toggle("late", (index === 2 && late(each.age_s)) || (index === 4 && held));
      row.append(cell);
    }
    return row;
  });
  byId("partitions").tBodies[0].replaceChildren(...rows);
}

function showCharts(history) {
  const times = history.map((point) => point.at);
  draw(byId("latency"), times, history.map((point) => point.latency_s), "seconds from injection to the outputs", seconds);
  draw(byId("changes"), times, history.map((point) => point.changes_per_s), "changes per second", number);
}

function card(name) {
  if (cards.has(name)) return cards.get(name);
  const root = byId("job").content.cloneNode(true).firstElementChild;
  const part = (key) => root.querySelector(`[data-${key}]`);
  const act = (verb, body, method = "POST") => async () => {
    part("answer").textContent = "…";
    try {
      await change(`jobs/${encodeURIComponent(name)}${verb && `/${verb}`}`, method, body?.());
      part("answer").textContent = "sent: from the next barrier on";
    } catch (problem) {
      part("answer").textContent = problem.message;
    }
  };
  part("pause").addEventListener("click", act("pause"));
  part("resume").addEventListener("click", act("resume"));
  part("drop").addEventListener("click", () => {
    if (!window.confirm(`Drop ${name}? Its topic stays, and gets no further change.`)) return;
    act("", null, "DELETE")();
  });
  part("throttle").addEventListener("click", act("throttle", () => {
    const text = part("limit").value;
    return { rate_limit: text === "" ? null : Number(text) };
  }));
  const made = { root, part, phase: null };
  cards.set(name, made);
  return made;
}

function showJob(job, history) {
  const made = card(job.name);
  const { root, part } = made;
  if (made.phase !== job.phase) {
    // What is finished is folded, once: who opens it again has it open.
    if (made.phase === null || job.phase === "live") root.open = job.phase !== "live";
    made.phase = job.phase;
  }
  part("name").textContent = job.name;
  const beside = job.barrier_topic ? `, barriers in ${job.barrier_topic}` : "";
  part("output").textContent = `topic ${job.output}, ${job.form}, ${job.output_partitions} partitions${beside}`;
  part("described").textContent = `${job.columns.join(", ")}${job.filter ? ` where ${job.filter}` : ""}`;
  const percent = Math.floor(job.share * 1000) / 10;
  part("bar").setAttribute("aria-valuenow", percent);
  part("bar").setAttribute("aria-label", `${job.name}: share of the snapshot that was read`);
  part("bar").firstElementChild.style.width = `${percent}%`;
  const words = [job.phase, `${percent.toFixed(1)} %`, `${number(job.rows_read)} rows read`, `${number(job.sent)} records sent`];
  if (job.phase === "backfilling") {
    if (job.rows_per_s !== null) words.push(`${number(job.rows_per_s)} rows/s`);
    if (job.seconds_left !== null) words.push(`${seconds(job.seconds_left)} left`);
  }
  const live = job.phase === "live";
  if (job.rate_limit !== null && !live) words.push(`limit ${number(job.rate_limit)} rows/s`);
  if (job.grew) words.push("the table grew ahead of the read");
  part("line").textContent = words.join(" · ");
  const times = history.map((point) => point.at);
  part("rate").hidden = live;
  if (!live) draw(part("rate"), times, history.map((point) => point.rows_per_s[job.name] ?? 0), "snapshot rows read per second", number);
  draw(part("sent"), times, history.map((point) => point.sent_per_s[job.name] ?? 0), "records sent per second", number);
  part("parts").textContent = `${job.part_name}s`;
  part("vnodes-done").textContent = `${job.vnodes_done} of ${job.parts} completed`;
  part("pacing").hidden = live;
  part("steer").hidden = !status.can_steer;
  part("limit").placeholder = job.rate_limit === null ? "none" : number(job.rate_limit);
  part("pause").disabled = job.paused;
  part("resume").disabled = !job.paused;
  return root;
}

function showVnodes(name, vnodes) {
  const { part } = card(name);
  const lanes = new Map();
  for (const each of vnodes) {
    const cell = document.createElement("span");
    cell.className = `cell ${each.state.replace(" ", "-")}`;
    cell.title = `${each.vnode}: ${each.state}, ${number(each.rows_read)} rows`;
    if (each.state === "in progress") {
      const level = document.createElement("i");
      level.style.height = `${Math.round(each.share * 100)}%`;
      cell.append(level);
    }
    if (!lanes.has(each.lane)) lanes.set(each.lane, []);
    lanes.get(each.lane).push({ cell, done: each.state === "completed" });
  }
  const rows = [...lanes].map(([lane, cells]) => {
    const row = document.createElement("div");
    row.className = "lane";
    const label = document.createElement("span");
    label.textContent = `lane ${lane}`;
    const grid = document.createElement("div");
    grid.className = "cells";
    grid.setAttribute("role", "img");
    const done = cells.filter((each) => each.done).length;
    grid.setAttribute("aria-label", `lane ${lane}: ${done} of ${cells.length} completed`);
    grid.append(...cells.map((each) => each.cell));
    row.append(label, grid);
    return row;
  });
  part("lanes").classList.toggle("many", vnodes.length > 256);
  part("lanes").replaceChildren(...rows);
}

async function refresh() {
  try {
    const [now, history] = await Promise.all([ask("status"), ask("history")]);
    status = now;
    setCondition(now.condition, conditionText(now), now.reason);
    byId("table").textContent = now.table;
    byId("upstream").textContent = now.upstream;
    byId("version").textContent = `version ${now.version}, ${now.owner}`;
    byId("create").hidden = !now.can_steer;
    byId("readonly").hidden = now.can_steer;
    document.title = `${now.table}: ${now.condition}`;
    showFacts();
    showCharts(history);
    showPartitions();
    const names = new Set(now.jobs.map((job) => job.name));
    for (const name of cards.keys()) if (!names.has(name)) cards.delete(name);
    const running = (job) => job.phase !== "live";
    const inOrder = [...now.jobs.filter(running), ...now.jobs.filter((job) => !running(job))];
    const shown = inOrder.map((job) => showJob(job, history));
    const place = byId("jobs");
    if (place.children.length !== shown.length || shown.some((root, index) => place.children[index] !== root)) {
      place.replaceChildren(...shown);
    }
    // Of what is folded nobody sees the vnodes.
    const unfolded = now.jobs.filter((job) => card(job.name).root.open);
    await Promise.all(unfolded.map(async (job) => showVnodes(job.name, await ask(`jobs/${encodeURIComponent(job.name)}/vnodes`))));
  } catch (problem) {
    if (problem.status === 401) {
      setCondition("unreachable", "token needed");
      await login("This service shows its status to those who have its token.");
    } else if (problem.status !== 404) {
      setCondition("unreachable", "the service does not answer");
    }
  }
  setTimeout(refresh, EVERY_MS);
}

for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close(""));
}
refresh();
