// The sentence at the top: how many outputs there are, how many are up to date, what is under way and when it is done.
"use strict";

const UNDER_WAY_SHOWN = 2;
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const coarse = (share) => `${Math.floor(share * 100)} %`;
const highestOf = (jobs, key) => Math.max(...jobs.map((job) => job[key] ?? 0));

// When all will be read, as a time of day: to the minute, for it is an estimate.
function about(at, now) {
  const when = new Date(1000 * at);
  const text = when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (at - now < 20 * 3600) return `about ${text}`;
  return `about ${when.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" })}, ${text}`;
}

// Has it read all? An output that is to end once it is complete gets no further change then.
const isDone = (job) => job.phase === "live" || job.phase === "ended";

// One job that is not done, as [its name, the rest].
function underWay(job, now) {
  const share = coarse(job.share);
  if (job.phase === "paused") return [job.name, ` paused at ${share}`];
  if (job.phase === "limited to 0") return [job.name, ` stands at ${share}, its limit is 0`];
  if (job.phase === "starting") return [job.name, " about to start"];
  if (!now.ready) return [job.name, ` ${share}, at a standstill`];
  return [job.name, ` ${share}, ${job.done_at === null ? "time left not known yet" : `done ${about(job.done_at, now.now)}`}`];
}

function manyUnderWay(jobs, now) {
  const times = jobs.map((job) => job.done_at);
  const last = times.includes(null) ? "" : `, the last done ${about(Math.max(...times), now.now)}`;
  const shares = jobs.map((job) => job.share);
  return `${number(jobs.length)} under way (${coarse(Math.min(...shares))} to ${coarse(Math.max(...shares))})${now.ready ? last : ", at a standstill"}`;
}

function liveText(live, all, now) {
  const behind = seconds(highestOf(live, "behind_s"));
  const count = live.length === all ? (all === 1 ? "" : "all ") : `${number(live.length)} `;
  if (now.ready) return `${count}up to date (${behind} behind)`;
  return `${count}complete as of ${moment(now.barrier_at ?? now.now)} (${behind} behind)`;
}

// What the service does before its first batch; none where it can be seen in the jobs.
function startText(now) {
  const { initial, reading } = now;
  if (reading !== null) return `Reading the table from its database: ${number(reading.rows)} of ${number(reading.of)} rows${reading.paused ? ", paused" : reading.seconds_left === null ? "" : `, done ${about(now.now + reading.seconds_left, now.now)}`}. `;
  if (initial !== null) {
    const [done, of, word] = initial.sorted ? [initial.sorted, initial.copied, "Sorting"] : [initial.copied, initial.of, "Copying"];
    return `${word} the table: ${number(done)}${of ? ` of ${number(of)} rows (${coarse(done / of)})` : " rows"}. `;
  }
  if (now.condition === "starting") return `Starting${now.step ? `: ${now.step}` : ""}. `;
  return "";
}

// Pieces of the sentence; a list of one is a name.
function sentenceOf(now) {
  const begin = startText(now);
  if (!now.jobs_known) return [begin || "No batch has ended yet."];
  if (!now.jobs.length) return [`${begin}No outputs yet.`];
  const live = now.jobs.filter((job) => job.phase === "live");
  const ended = now.jobs.filter((job) => job.phase === "ended");
  const others = now.jobs.filter((job) => !isDone(job));
  const pieces = [begin, plural(now.jobs.length, "output")];
  if (live.length) pieces.push(", ", liveText(live, now.jobs.length, now));
  if (ended.length) pieces.push(`, ${number(ended.length)} ended complete`);
  if (others.length > UNDER_WAY_SHOWN) pieces.push(", ", manyUnderWay(others, now));
  else for (const job of others) {
    const [name, rest] = underWay(job, now);
    pieces.push(", ", [name], rest);
  }
  return [...pieces, "."];
}

function showSentence(now) {
  const pieces = sentenceOf(now).filter((piece) => piece.length);
  const place = byId("sentence");
  const text = pieces.flat().join("");
  if (place.textContent === text) return;
  place.replaceChildren(...pieces.map((piece) => {
    if (typeof piece === "string") return piece;
    const name = document.createElement("code");
    name.textContent = piece[0];
    return name;
  }));
}
