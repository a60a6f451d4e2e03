// The jobs: a row each, which opens to its charts, its parts and what can be done to it.
"use strict";

const KINDS = {
  arrangement: ["the table as this service keeps it", "arrangement: from the replica, by vnode"],
  "no-shuffle": ["the table as this service keeps it, by upstream partition", "no-shuffle: from the replica, by partition"],
  source: ["every record of the topic", "source"],
};
// What was asked for, what is seen once it is so, and what is said then.
const ASKED = {
  pause: ["pausing…", (job) => job.paused, (job) => `paused at ${moment(job.phase_since ?? clockNow())}`],
  resume: ["resuming…", (job) => !job.paused, () => `resumed at ${moment(clockNow())}`],
  throttle: ["setting the limit…", (job, body) => job.rate_limit === body.rate_limit, () => `limit set at ${moment(clockNow())}`],
};
const cards = new Map();

function card(name) {
  if (cards.has(name)) return cards.get(name);
  const root = byId("job").content.cloneNode(true).firstElementChild;
  const part = (key) => root.querySelector(`[data-${key}]`);
  const fresh = { root, part, asked: null };
  const act = async (verb, body, method = "POST", path = `jobs/${encodeURIComponent(name)}${verb && `/${verb}`}`) => {
    const [doing] = ASKED[verb] ?? ["dropping…"];
    setText(part("answer"), doing);
    try {
      await change(path, method, body);
      fresh.asked = verb ? [ASKED[verb], body] : null;
    } catch (problem) {
      setText(part("answer"), problem.message);
    }
  };
  const open = () => {
    part("more").hidden = !part("more").hidden;
    part("open").setAttribute("aria-expanded", String(!part("more").hidden));
    if (part("more").hidden) return;
    showDetails(part, status.jobs.find((job) => job.name === name), past);
    showParts();
    showOutput(name);
  };
  part("open").addEventListener("click", (event) => {
    event.stopPropagation();
    open();
  });
  // A click anywhere in the row, unless it selects text or presses a button.
  part("row").addEventListener("click", (event) => {
    if (!event.target.closest("button, input") && window.getSelection().isCollapsed) open();
  });
  // One button: it keeps the focus, which one that is disabled by its own press would lose.
  part("pause").addEventListener("click", () => act(part("pause").dataset.verb));
  part("drop").addEventListener("click", () => {
    if (!window.confirm(`Drop ${name}? Its topic stays, and gets no further change.`)) return;
    // A suspended table takes no request but those that lead on.
    if (status.condition === "suspended") act("", { drop: name }, "POST", "suspended");
    else act("", null, "DELETE");
  });
  part("throttle").addEventListener("click", () => {
    const text = part("limit").value;
    act("throttle", { rate_limit: text === "" ? null : Number(text) });
  });
  part("limit").setAttribute("aria-label", `limit of ${name}, rows per second`);
  part("throttle").setAttribute("aria-label", `Set limit of ${name}`);
  part("drop").setAttribute("aria-label", `Drop ${name}`);
  part("bar").setAttribute("aria-label", `${name}: share of the snapshot that was read`);
  cards.set(name, fresh);
  return fresh;
}

function stateText(job) {
  const share = percent(job.share);
  if (isDone(job)) return job.phase_since === null ? job.phase : `${job.phase} since ${moment(job.phase_since)}`;
  if (job.phase === "backfilling") return status.ready ? share : `stands at ${share}`;
  if (job.phase === "paused") return `paused at ${share}`;
  return job.phase === "starting" ? "starts with the next barrier" : `stands at ${share}: limit 0`;
}

function doneText(job) {
  if (isDone(job)) return "";
  const isPaused = job.phase === "paused" && job.phase_since !== null;
  const done = job.done_at === null ? "" : `done ${about(job.done_at, status.now)}, ${seconds(job.seconds_left)} left`;
  return [isPaused ? `since ${moment(job.phase_since)}` : done, job.grew ? "or less: the table grew" : ""].filter(Boolean).join("; ");
}

function showFigures(part, job) {
  const isLive = isDone(job);
  setText(part("state"), stateText(job));
  setText(part("behind"), seconds(job.behind_s));
  part("behind").parentElement.classList.toggle("late", late(job.behind_s));
  const isWorst = job.worst_behind_s === job.behind_s;
  setText(part("worst"), job.worst_behind_s === null ? "" : isWorst ? "the worst of the hour" : `worst ${seconds(job.worst_behind_s)} at ${moment(job.worst_behind_at)}`);
  const pace = isLive ? job.sent_per_s : job.rows_per_s;
  setText(part("pace"), pace === null ? "–" : `${number(pace)} ${isLive ? "records" : "rows"}/s`);
  setText(part("limited"), isLive || job.rate_limit === null ? "" : `limit ${number(job.rate_limit)}`);
  setText(part("done"), doneText(job));
  setText(part("records"), number(job.sent));
  setText(part("since"), `since ${moment(job.sent_since)}`);
  setText(part("output"), job.output);
  part("output").title = job.output;
  setText(part("form"), job.form);
  const share = Math.floor(job.share * 1000) / 10;
  part("bar").hidden = isLive;
  part("bar").setAttribute("aria-valuenow", share);
  part("bar").firstElementChild.style.width = `${share}%`;
}

function showControls({ part, asked }, job) {
  const isLive = isDone(job);
  part("pacing").hidden = isLive || status.condition === "suspended";
  part("steer").hidden = !status.can_steer;
  part("pause").hidden = isLive || !status.can_steer || status.condition === "suspended";
  part("limit").placeholder = job.rate_limit === null ? "none" : number(job.rate_limit);
  part("pause").dataset.verb = job.paused ? "resume" : "pause";
  const word = job.paused ? "Resume" : "Pause";
  setText(part("pause"), word);
  part("pause").setAttribute("aria-label", `${word} ${job.name}`);
  if (asked === null) return false;
  const [[, isSo, text], body] = asked;
  if (!isSo(job, body)) return false;
  setText(part("answer"), text(job));
  return true;
}

function showDetails(part, job, history) {
  const [kind, exact] = KINDS[job.kind];
  showTerms(part("terms"), [
    ["reads", kind, exact],
    ["output", `${job.output}, ${plural(job.output_partitions, "partition")}, ${job.form}`],
    ["barriers", job.barrier_topic === null ? "in the output" : `in ${job.barrier_topic}`],
    ["rows read", number(job.rows_read), job.rows_left ? `about ${number(job.rows_left)} left` : ""],
    ["created", moment(job.start_at), null, false, `barrier ${job.start}`],
    ["columns", job.columns.join(", ")],
    ...(job.key.length ? [["key", job.key.join(", ")]] : []),
    ...(job.latency_budget_s === null ? [] : [["latency budget", seconds(job.latency_budget_s)]]),
    ...(job.filter === null ? [] : [["filter", job.filter]]),
    ...(job.columns_refused === null ? [] : [["no new columns", job.columns_refused, null, true]]),
    ...(job.paused_by === null ? [] : [["paused by", job.paused_by, null, true]]),
  ]);
  const times = history.map((point) => point.at);
  const isLive = isDone(job);
  const of = (rates) => history.map((point) => point[rates][job.name] ?? 0);
  const how = { shown: count, now: status.now };
  part("rate").hidden = isLive;
  if (!isLive) draw(part("rate"), times, of("rows_per_s"), { ...how, label: "snapshot rows read per second", current: job.rows_per_s });
  draw(part("sent"), times, of("sent_per_s"), { ...how, label: "records sent per second", current: job.sent_per_s });
  setText(part("parts"), "parts");
  part("parts").title = `${job.part_name}s`;
  setText(part("vnodes-done"), `${number(job.vnodes_done)} of ${number(job.parts)} complete, by worker`);
}

function showJob(job, history) {
  const shown = card(job.name);
  const { part } = shown;
  setText(part("name"), job.name);
  part("open").title = job.name;
  showFigures(part, job);
  if (showControls(shown, job)) shown.asked = null;
  if (!part("more").hidden) showDetails(part, job, history);
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
    setText(label, `worker ${lane}`);
    label.title = `lane ${lane}`;
    const countOf = (state) => parts.filter((each) => each.state === state).length;
    const text = `${countOf("completed")} of ${parts.length} complete, ${countOf("in progress")} under way`;
    grid.setAttribute("aria-label", `worker ${lane}: ${text}`);
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
  const isRunning = (job) => !isDone(job);
  const inOrder = [...now.jobs.filter(isRunning), ...now.jobs.filter((job) => !isRunning(job))];
  const names = inOrder.map((job) => job.name);
  for (const name of cards.keys()) if (!names.includes(name)) cards.delete(name);
  for (const job of inOrder) showJob(job, history);
  const table = byId("jobs");
  keep(table, ["", ...names], (name) => card(name).root);
  table.hidden = !names.length;
  byId("no-jobs").hidden = names.length > 0;
  const how = now.can_steer ? "New job makes the first one." : "The command backfill create makes the first one.";
  setText(byId("no-jobs"), now.jobs_known ? `None yet. ${how}` : "Not known yet: no batch has ended.");
}

// Asked for when a row opens, for it takes the broker a request for each consumer group.
async function showOutput(name) {
  const { part } = card(name);
  setText(part("readers"), "asking the broker…");
  try {
    const { offsets, readers, unasked } = await look(`jobs/${encodeURIComponent(name)}/output`);
    const named = readers.map((each) => {
      const behind = each.behind ? `${number(each.behind)} behind` : "at its end";
      return `${each.group} ${behind}${each.state === "EMPTY" ? ", not running" : ""}`;
    });
    const beyond = unasked ? `; ${plural(unasked, "group")} not asked` : "";
    setText(part("readers"), `${plural(offsets, "offset")} at ${moment(clockNow())}; read by ${named.join("; ") || "no consumer group"}${beyond}`);
  } catch (problem) {
    setText(part("readers"), `not known: ${problem.message}`);
  }
}

// Not of what is folded. Without an answer the job was dropped a moment ago, or the next request has it.
async function showParts() {
  const unfolded = [...cards.keys()].filter((name) => !card(name).part("more").hidden);
  const answers = unfolded.map((name) => look(`jobs/${encodeURIComponent(name)}/vnodes`).catch(() => null));
  (await Promise.all(answers)).forEach((vnodes, index) => vnodes && showVnodes(unfolded[index], vnodes));
}
