// What the page says of the service as a whole: its pace, its state on the disk, its upstream, and what is amiss.
"use strict";

const LOOK_S = 15; // three looks at the upstream
const AMISS = ["waiting for barriers", "upstream stuck"];
const HELD_S = 10; // what lasts less is a transaction as others are
const count = (value) => (value === null || value === undefined ? "–" : number(value));
const late = (age) => age !== null && age > status.late_s;

function made(tag, className) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  return element;
}

// A list of terms, each with a value and a note: [term, value, note, whether it is wrong, what is behind the value]. A term of two words, as in
// "workers|lanes", has the exact one behind the plain one.
function showTerms(place, terms) {
  const make = () => {
    const [box, name] = [made("div"), made("dt")];
    name.append(made("abbr"), made("span", "exact"));
    box.append(name, made("dd", "value"), made("dd", "note"));
    return box;
  };
  const boxes = keep(place, terms.map(([term]) => term), make);
  terms.forEach(([term, value, note, isWrong, exactly], index) => {
    const [name, figure, beside] = boxes[index].children;
    const [plain, exact] = term.split("|");
    setText(name.firstElementChild, plain);
    setText(name.lastElementChild, exact ? ` ${exact}` : "");
    setText(figure, value);
    setText(beside, note ?? "");
    beside.hidden = !note;
    figure.title = exactly ?? "";
    boxes[index].classList.toggle("late", Boolean(isWrong));
  });
}

function showFacts(now, history) {
  const { latency } = now;
  showTerms(byId("facts"), [
    ["up to date as of|barrier", now.barrier_at === null ? "–" : moment(now.barrier_at), `${seconds(now.barrier_age_s)} ago`, late(now.barrier_age_s), `barrier ${now.barrier}`],
    ["workers|lanes", now.lanes || "–", `of ${now.vnode_count ? `${number(now.vnode_count)} parts (vnodes)` : "upstream partitions"}${now.lanes_set ? ", set by backfill lanes" : ""}`],
    ["set aside|parked", number(now.parked), `invalid records since ${moment(now.started)}`, now.parked > 0],
    ["process", moment(now.started), `its start; ${now.owner}`],
  ]);
  setText(byId("service-short"), `since ${moment(now.started)}${now.parked ? `, ${number(now.parked)} invalid records set aside` : ""}`);
  byId("charts").hidden = !history.length;
  const times = history.map((point) => point.at);
  const budgets = now.jobs.filter((job) => !isDone(job) && job.latency_budget_s !== null).map((job) => job.latency_budget_s);
  const budget = budgets.length ? Math.min(...budgets) : null;
  draw(byId("latency"), times, history.map((point) => point.latency_s), {
    label: "seconds from injection to the outputs", shown: seconds, current: now.ready ? (history.at(-1)?.latency_s ?? null) : null, now: now.now, isDelay: true, budget,
  });
  const limit = budget === null ? "" : `dashed: the budget of ${seconds(budget)}. `;
  setText(byId("latency-note"), latency.p50_s === null ? `${limit}None came out in the last minute.` : `${limit}Last minute: half within ${seconds(latency.p50_s)}, 99 % within ${seconds(latency.p99_s)}.`);
  draw(byId("changes"), times, history.map((point) => point.changes_per_s), {
    label: "changes per second", shown: count, current: now.changes_per_s, now: now.now,
  });
}

const hasFailed = (each) => each !== undefined && each.failures > 0;

function compactionTerm(now) {
  const work = now.maintenance.find((each) => each.work === "compaction");
  let doing = work ? "none is due" : "not known now";
  if (hasFailed(work)) doing = `failing: ${work.error}, ${number(work.failures)} in a row`;
  else if (work && work.running_s !== null) doing = `under way for ${seconds(work.running_s)}`;
  if (now.compaction_age_s === null) return ["last compaction", "none yet", doing, hasFailed(work)];
  return ["last compaction", seconds(now.compaction_age_s), `ago; ${doing}`, hasFailed(work)];
}

// Opens what is folded where something in it begins to be amiss; a reader may fold it again.
function unfold(place, isAmiss) {
  if (isAmiss && place.dataset.amiss !== "yes") place.open = true;
  place.dataset.amiss = isAmiss ? "yes" : "no";
  place.classList.toggle("amiss", isAmiss);
}

// Of rows without a key nothing is kept, so there is no replica.
function showState(now) {
  const { disk } = now;
  const size = (count) => (disk === null ? "…" : bytes(count));
  const terms = [];
  if (now.vnode_count) {
    terms.push(
      compactionTerm(now),
      ["rows of the table|base", size(disk?.base_bytes), `${number(now.replica_rows)} rows as of the last compaction`],
      ["changes since|log", size(disk?.log_bytes), `${number(now.log_rows)}; the next compaction takes them in`],
    );
  }
  const others = [
    ["plans of batches|journal", disk?.journal_bytes, ""],
    ["how far jobs are|progress", disk?.progress_bytes, ""],
    ["rows by key", disk?.rows_bytes, "the rows before, on this machine"],
    ["of the table, on its way in|chunks", disk?.initial_bytes, ""],
  ];
  for (const [term, count, note] of others) if (count !== null && count !== undefined) terms.push([term, bytes(count), note]);
  if (disk !== null && disk.free_bytes !== null) {
    terms.push(["free", bytes(disk.free_bytes), `of ${bytes(disk.disk_bytes)} of the state's disk`, disk.is_low]);
  }
  if (disk !== null && disk.rows_free_bytes !== null) {
    terms.push(["free for rows", bytes(disk.rows_free_bytes), "on the disk of the rows by key", disk.rows_low]);
  }
  showTerms(byId("state-facts"), terms);
  let when = "is being measured";
  if (disk !== null) when = disk.age_s === null ? "in an object store, as its tables name them" : `measured ${seconds(disk.age_s)} ago`;
  setText(byId("measured"), `Sizes: ${when}.`);
  const parts = ["base", "log", "journal", "progress", "rows", "initial"].map((part) => disk?.[`${part}_bytes`] ?? 0);
  const free = disk?.free_bytes === null || disk === null ? "" : `, ${bytes(disk.free_bytes)} free`;
  setText(byId("state-short"), disk === null ? "being measured" : `${bytes(parts.reduce((sum, each) => sum + each, 0))}${free}`);
  unfold(byId("state-fold"), now.maintenance.some(hasFailed) || Boolean(disk?.is_low || disk?.rows_low));
}

// What goes on in spite of it, but not for ever. `key`: what makes it news.
function troublesOf(now) {
  const isSaid = now.condition === "suspended" || failedBefore(now);
  const ended = now.last_end !== null && !isSaid ? [{ key: `end ${now.last_end.kind}`, text: endBefore(now.last_end) }] : [];
  const paused = now.jobs.filter((job) => job.paused_by !== null).map((job) => ({ key: `paused ${job.name}`, text: `The service has paused ${job.name}: ${job.paused_by}.` }));
  const troubles = now.maintenance.filter(hasFailed).map((each) => {
    const again = each.running_s === null ? `again in ${seconds(each.again_in_s)}` : "under way again";
    return { key: each.work, text: `The ${each.work} fails: ${each.error}, ${each.failures} in a row, ${again}. Next: ${each.next_step}.` };
  });
  troubles.unshift(...ended, ...paused);
  if (now.reading?.trouble) troubles.push({ key: "reading", text: `The read of the table waits: ${now.reading.trouble}.` });
  for (const each of now.partitions) {
    if (each.held_s === null || each.held_s <= HELD_S) continue;
    const since = moment(now.now - each.held_s);
    const text = `An open transaction holds back partition ${each.partition} at offset ${number(each.held_offset)} since ${since}: ${number(each.unstable)} records there are late by ${seconds(each.held_s)}. Next: end its producer, or abort the transaction (kafka-transactions.sh).`;
    troubles.push({ key: `held ${each.partition}@${each.held_offset}`, text });
  }
  if (now.disk?.is_low) {
    const text = `The state's disk has ${bytes(now.disk.free_bytes)} left. Next: make room on it, or move the state to a larger one.`;
    troubles.push({ key: "disk", text });
  }
  if (now.disk?.rows_low) {
    const text = `The rows by key have ${bytes(now.disk.rows_free_bytes)} left on their disk. Next: make room on it, or name a folder on a larger one as rows_folder.`;
    troubles.push({ key: "rows", text });
  }
  return troubles;
}

function barriersText({ barriers, barrier_topic, barrier_interval_s }) {
  const place = barrier_topic === null ? "in the topic" : `in ${barrier_topic}`;
  return `${place}, ${barriers === "inject" ? "by this service" : "by others"}, every ${seconds(barrier_interval_s)}`;
}

// Columns that rows lack, and fields that are no columns.
function fieldTerms({ lost, never, undeclared, more }, incomplete) {
  const absent = [...lost, ...never];
  const terms = [];
  if (incomplete.length) terms.push(["incomplete columns", incomplete.join(", "), "values from before they were columns are missing"]);
  if (absent.length) terms.push(["absent columns", number(absent.length), `in none of the newest rows: ${absent.join(", ")}`, true]);
  if (undeclared.length) {
    const names = undeclared.slice(0, 20).join(", ");
    terms.push(["not declared", `${number(undeclared.length)}${more ? " and more" : ""}`, `${names}; backfill alter --accept-missing --add 'name: type' or --ignore name`]);
  }
  return terms;
}

// What a look at the upstream has shown is old once the next looks fail.
const isOld = (now) => now.look_age_s !== null && now.look_age_s > LOOK_S;

// Null is no deletion by age, once there was a look.
function keptFor(now, margins) {
  if (margins.length) return seconds(Math.min(...margins));
  return now.look_age_s === null ? "not known yet" : "as long as the topic";
}

function showUpstream(now) {
  const { source, partitions } = now;
  const margins = partitions.map((each) => each.margin_s).filter((each) => each !== null);
  const lags = partitions.map((each) => each.lag).filter((each) => each !== null);
  const least = Math.min(...margins);
  const old = isOld(now) ? `as of ${moment(now.now - now.look_age_s)}` : "";
  const toRead = lags.length ? `${number(lags.reduce((sum, each) => sum + each, 0))} records` : "not known yet";
  const short = lags.length ? `${toRead} to read${old && ` ${old}`}` : "not looked at yet";
  const fields = fieldTerms(now.fields, now.incomplete);
  const isShort = Boolean(margins.length) && least <= 0;
  const terms = [
    ["topic", now.upstream],
    ["form", source.form],
    ["barriers", barriersText(source)],
    ["requests|control", source.control_topic],
    ["to read|lag", toRead, old],
    ["unread kept for", keptFor(now, margins), old, isShort],
    ["changes", now.changes_per_s === null ? "–" : `${number(now.changes_per_s)} a second`, ""],
  ];
  if (source.start !== null) terms.push(["starts from", source.start]);
  if (source.moved_at !== null) terms.push(["partitions added", `${moment(source.moved_at)}: ${MOVED}`]);
  showTerms(byId("source"), [...terms, ...fields]);
  showPartitions(now);
  setText(byId("looked"), old && `To read, held back and kept for are ${old}: the broker has not answered since.`);
  setText(byId("upstream-short"), `${now.upstream}, ${source.form}, ${short}`);
  const isAmiss = AMISS.includes(now.condition) || fields.some((term) => term[3]) || isShort || partitions.some(isHeld);
  unfold(byId("upstream-fold"), isAmiss);
}

const MOVED = "a key whose records cross the change without an interval between may be left with the older row";

const isHeld = (each) => each.held_s !== null && each.held_s > HELD_S;

function showPartitions(now) {
  const make = () => {
    const row = made("tr");
    for (let index = 0; index < 7; index += 1) row.append(made(index ? "td" : "th"));
    row.firstElementChild.scope = "row";
    return row;
  };
  const rows = keep(byId("partitions").tBodies[0], now.partitions.map((each) => each.partition), make);
  now.partitions.forEach((each, number_) => {
    const { children } = rows[number_];
    const open = isHeld(each) ? `${seconds(each.held_s)}, ${number(each.unstable)} records` : "–";
    const barrier = each.barrier_at === null ? "none yet" : moment(each.barrier_at);
    const cells = [each.partition, barrier, seconds(each.age_s), each.barriers_waiting, count(each.lag), open, each.margin_s === null ? "–" : seconds(each.margin_s)];
    cells.forEach((text, index) => setText(children[index], text));
    children[1].title = each.barrier === null ? "" : `barrier ${each.barrier}`;
    children[2].classList.toggle("late", late(each.age_s));
    children[5].classList.toggle("late", isHeld(each));
    for (const index of [4, 5, 6]) children[index].classList.toggle("aged", isOld(now));
  });
  // What is wider than its place is moved by the arrow keys.
  const place = byId("partitions").parentElement;
  if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
  else place.removeAttribute("tabindex");
}
