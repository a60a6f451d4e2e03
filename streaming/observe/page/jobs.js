// The jobs: a card each, which folds, with its charts, its parts and what can be done to it.
"use strict";

const KINDS = {
  arrangement: "arrangement: the table from the replica, by vnode",
  "no-shuffle": "no-shuffle: the table from the replica, by upstream partition",
  source: "source: every record of the topic",
};
const cards = new Map();

function card(name) {
  if (cards.has(name)) return cards.get(name);
  const root = byId("job").content.cloneNode(true).firstElementChild;
  const part = (key) => root.querySelector(`[data-${key}]`);
  const act = async (verb, body, method = "POST") => {
    part("answer").textContent = "…";
    try {
      await change(`jobs/${encodeURIComponent(name)}${verb && `/${verb}`}`, method, body);
      part("answer").textContent = "sent: from the next barrier on";
    } catch (problem) {
      part("answer").textContent = problem.message;
    }
  };
  // One button: it keeps the focus, which one that is disabled by its own press would lose.
  part("pause").addEventListener("click", () => act(part("pause").dataset.verb));
  part("drop").addEventListener("click", () => {
    if (window.confirm(`Drop ${name}? Its topic stays, and gets no further change.`)) act("", null, "DELETE");
  });
  part("throttle").addEventListener("click", () => {
    const text = part("limit").value;
    act("throttle", { rate_limit: text === "" ? null : Number(text) });
  });
  part("limit").setAttribute("aria-label", `limit of ${name}, rows per second`);
  part("throttle").setAttribute("aria-label", `Set limit of ${name}`);
  part("drop").setAttribute("aria-label", `Drop ${name}`);
  part("bar").setAttribute("aria-label", `${name}: share of the snapshot that was read`);
  const fresh = { root, part, phase: null };
  cards.set(name, fresh);
  return fresh;
}

function fold(shown, job) {
  if (shown.phase === job.phase) return;
  // What is finished is folded, once, unless a control in it has the focus. Opened again, it stays open.
  const isBusy = shown.root.contains(document.activeElement);
  if (shown.phase === null || (job.phase === "live" && !isBusy)) shown.root.open = job.phase !== "live";
  shown.phase = job.phase;
}

function jobLine(job) {
  const words = [job.phase, percent(job.share), `${number(job.rows_read)} rows read`, `${number(job.sent)} records sent`];
  if (job.phase === "backfilling") {
    if (job.rows_per_s !== null) words.push(`${number(job.rows_per_s)} rows/s`);
    if (job.seconds_left !== null) words.push(`${seconds(job.seconds_left)} left`);
  }
  if (job.rate_limit !== null && job.phase !== "live") words.push(`limit ${number(job.rate_limit)} rows/s`);
  if (job.grew) words.push("the table grew ahead of the read");
  return words.join(" · ");
}

function showSteering(part, job) {
  part("pacing").hidden = job.phase === "live";
  part("steer").hidden = !status.can_steer;
  part("limit").placeholder = job.rate_limit === null ? "none" : number(job.rate_limit);
  part("pause").dataset.verb = job.paused ? "resume" : "pause";
  const word = job.paused ? "Resume" : "Pause";
  setText(part("pause"), word);
  part("pause").setAttribute("aria-label", `${word} ${job.name}`);
}

function showJob(job, history) {
  const shown = card(job.name);
  const { part } = shown;
  fold(shown, job);
  setText(part("name"), job.name);
  setText(part("output"), `topic ${job.output}`);
  showTerms(part("terms"), [
    ["kind", KINDS[job.kind]],
    ["output", `${job.form}, ${number(job.output_partitions)} partitions of ${job.output}`],
    ["barriers", job.barrier_topic === null ? "in the output" : `in ${job.barrier_topic}`],
    ["columns", job.columns.join(", ")],
    ...(job.filter === null ? [] : [["filter", job.filter]]),
  ]);
  const share = Math.floor(job.share * 1000) / 10;
  part("bar").setAttribute("aria-valuenow", share);
  part("bar").firstElementChild.style.width = `${share}%`;
  setText(part("line"), jobLine(job));
  const times = history.map((point) => point.at);
  const isLive = job.phase === "live";
  part("rate").hidden = isLive;
  const of = (rates) => history.map((point) => point[rates][job.name] ?? 0);
  if (!isLive) draw(part("rate"), times, of("rows_per_s"), "snapshot rows read per second", number);
  draw(part("sent"), times, of("sent_per_s"), "records sent per second", number);
  setText(part("parts"), `${job.part_name}s`);
  setText(part("vnodes-done"), `${job.vnodes_done} of ${job.parts} completed`);
  showSteering(part, job);
}

const laneMade = () => {
  const row = made("div", "lane");
  const grid = made("div", "cells");
  grid.setAttribute("role", "img");
  row.append(made("span"), grid);
  return row;
};

const cellMade = () => {
  const cell = made("span", "cell");
  cell.append(made("i"));
  return cell;
};

function showVnodes(name, vnodes) {
  const { part } = card(name);
  const lanes = new Map();
  for (const each of vnodes) lanes.set(each.lane, [...(lanes.get(each.lane) ?? []), each]);
  part("lanes").classList.toggle("many", vnodes.length > 256);
  const rows = keep(part("lanes"), [...lanes.keys()], laneMade);
  [...lanes].forEach(([lane, parts], index) => {
    const [label, grid] = rows[index].children;
    setText(label, `lane ${lane}`);
    const count = (state) => parts.filter((each) => each.state === state).length;
    const text = `${count("completed")} of ${parts.length} completed, ${count("in progress")} in progress`;
    grid.setAttribute("aria-label", `lane ${lane}: ${text}`);
    const cells = keep(grid, parts.map((each) => each.vnode), cellMade);
    parts.forEach((each, place) => {
      const cell = cells[place];
      cell.className = `cell ${each.state.replace(" ", "-")}`;
      cell.title = `${each.vnode}: ${each.state}, ${number(each.rows_read)} rows`;
      cell.firstElementChild.style.height = each.state === "in progress" ? `${Math.round(each.share * 100)}%` : "0";
    });
  });
}

function showJobs(now, history) {
  const isRunning = (job) => job.phase !== "live";
  const inOrder = [...now.jobs.filter(isRunning), ...now.jobs.filter((job) => !isRunning(job))];
  const names = inOrder.map((job) => job.name);
  for (const name of cards.keys()) if (!names.includes(name)) cards.delete(name);
  for (const job of inOrder) showJob(job, history);
  keep(byId("jobs"), names, (name) => card(name).root);
  byId("no-jobs").hidden = names.length > 0;
}

// Not of what is folded. Without an answer the job was dropped a moment ago, or the next request has it.
async function showParts() {
  const unfolded = [...cards.keys()].filter((name) => card(name).root.open);
  const answers = unfolded.map((name) => look(`jobs/${encodeURIComponent(name)}/vnodes`).catch(() => null));
  (await Promise.all(answers)).forEach((vnodes, index) => vnodes && showVnodes(unfolded[index], vnodes));
}
