// What the page says of the service as a whole: its pace, its state on the disk, its upstream, and what is amiss.
"use strict";

const HELD_S = 10; // what lasts less is a transaction as others are
const late = (age) => age !== null && age > status.late_s;

function made(tag, className) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  return element;
}

// A list of terms, each with a value and a note: [term, value, note, whether it is wrong].
function showTerms(place, terms) {
  const make = () => {
    const box = made("div");
    box.append(made("dt"), made("dd", "value"), made("dd", "note"));
    return box;
  };
  const boxes = keep(place, terms.map(([term]) => term), make);
  terms.forEach(([term, value, note, isWrong], index) => {
    const [name, figure, beside] = boxes[index].children;
    setText(name, term);
    setText(figure, value);
    setText(beside, note ?? "");
    beside.hidden = !note;
    boxes[index].classList.toggle("late", Boolean(isWrong));
  });
}

// How far a table is there that the state starts from.
function startTerms({ initial, reading }) {
  const terms = [];
  if (reading !== null) {
    const share = reading.of ? `${Math.floor((100 * reading.rows) / reading.of)} %` : number(reading.rows);
    const left = reading.paused ? "paused" : `${seconds(reading.seconds_left)} left`;
    const waiting = reading.waiting_rows ? `, ${number(reading.waiting_rows)} wait for their changes` : "";
    const text = `${number(reading.rows)} of ${number(reading.of)} rows of the database${waiting}, ${left}`;
    terms.push(["read", share, reading.trouble ?? text, reading.trouble !== null]);
  }
  if (initial !== null) {
    const [done, of, what] = initial.sorted ? [initial.sorted, initial.copied, "sorted"] : [initial.copied, initial.of, "copied"];
    const value = of ? `${Math.floor((100 * done) / of)} %` : number(done);
    terms.push([what, value, `${number(done)} rows of the table that the state starts from`]);
  }
  return terms;
}

function showFacts(now, history) {
  showTerms(byId("facts"), [
    ...startTerms(now),
    ["barrier", seconds(now.barrier_age_s), "age of the last one in the outputs", late(now.barrier_age_s)],
    ["latency p50", seconds(now.latency.p50_s), "barrier injected to readable, last minute"],
    ["latency p99", seconds(now.latency.p99_s), "barrier injected to readable, last minute"],
    ["lanes", now.lanes, now.vnode_count ? `of ${now.vnode_count} vnodes` : "of upstream partitions"],
    ["parked", number(now.parked), "invalid records since the start", now.parked > 0],
  ]);
  const times = history.map((point) => point.at);
  draw(byId("latency"), times, history.map((point) => point.latency_s), "seconds from injection to the outputs", seconds);
  draw(byId("changes"), times, history.map((point) => point.changes_per_s), "changes per second", number);
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

// Of rows without a key nothing is kept, so there is no replica.
function showState(now) {
  const { disk } = now;
  const size = (count) => (disk === null ? "…" : bytes(count));
  const terms = [];
  if (now.vnode_count) {
    terms.push(
      compactionTerm(now),
      ["base", size(disk?.base_bytes), `${number(now.replica_rows)} rows`],
      ["log", size(disk?.log_bytes), `${number(now.log_rows)} changes that wait to be compacted`],
    );
  }
  const others = [
    ["journal", disk?.journal_bytes, "plans of batches"],
    ["progress", disk?.progress_bytes, "how far jobs are"],
    ["rows by key", disk?.rows_bytes, "the rows before, on this machine"],
    ["chunks", disk?.initial_bytes, "of the table, on their way in"],
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
}

// What goes on in spite of it, but not for ever. `key`: what makes it news.
function troublesOf(now) {
  const ended = now.last_end !== null && now.condition !== "suspended" ? [{ key: `end ${now.last_end.kind}`, text: endBefore(now.last_end) }] : [];
  const troubles = now.maintenance.filter(hasFailed).map((each) => {
    const again = each.running_s === null ? `again in ${seconds(each.again_in_s)}` : "under way again";
    return { key: each.work, text: `The ${each.work} fails: ${each.error}, ${each.failures} in a row, ${again}. Next: ${each.next_step}.` };
  });
  troubles.unshift(...ended);
  for (const each of now.partitions) {
    if (each.held_s === null || each.held_s <= HELD_S) continue;
    const since = new Date(Date.now() - 1000 * each.held_s).toLocaleTimeString();
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
function fieldTerms({ lost, never, undeclared, more }) {
  const absent = [...lost, ...never];
  const terms = [];
  if (absent.length) terms.push(["absent columns", number(absent.length), `in none of the newest rows: ${absent.join(", ")}`, true]);
  if (undeclared.length) terms.push(["not declared", `${number(undeclared.length)}${more ? " and more" : ""}`, undeclared.slice(0, 20).join(", ")]);
  return terms;
}

function showUpstream(now) {
  const { source, partitions } = now;
  const margins = partitions.map((each) => each.margin_s).filter((each) => each !== null);
  const lags = partitions.map((each) => each.lag).filter((each) => each !== null);
  const least = Math.min(...margins);
  const terms = [
    ["topic", now.upstream],
    ["form", source.form],
    ["barriers", barriersText(source)],
    ["control", source.control_topic],
    ["lag", lags.length ? `${number(lags.reduce((sum, each) => sum + each, 0))} offsets` : "not known yet"],
    ["unread kept for", margins.length ? seconds(least) : "as long as the topic, or not known", null, margins.length && least <= 0],
  ];
  if (source.start !== null) terms.push(["starts from", source.start]);
  showTerms(byId("source"), [...terms, ...fieldTerms(now.fields)]);
  showPartitions(partitions);
}

function showPartitions(partitions) {
  const make = () => {
    const row = made("tr");
    for (let index = 0; index < 7; index += 1) row.append(made(index ? "td" : "th"));
    row.firstElementChild.scope = "row";
    return row;
  };
  const rows = keep(byId("partitions").tBodies[0], partitions.map((each) => each.partition), make);
  partitions.forEach((each, number_) => {
    const held = each.held_s !== null && each.held_s > HELD_S;
    const open = held ? `${seconds(each.held_s)}, ${number(each.unstable)} records` : "–";
    const lag = each.lag === null ? "–" : number(each.lag);
    const cells = [each.partition, each.barrier ?? "none yet", seconds(each.age_s), each.barriers_waiting, lag, open, seconds(each.margin_s)];
    cells.forEach((text, index) => setText(rows[number_].children[index], text));
    rows[number_].children[2].classList.toggle("late", late(each.age_s));
    rows[number_].children[5].classList.toggle("late", held);
  });
  // What is wider than its place is moved by the arrow keys.
  const place = byId("partitions").parentElement;
  if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
  else place.removeAttribute("tabindex");
}
