// The status page: asks the API every second and shows what it says. No library, nothing from elsewhere.
"use strict";

const EVERY_MS = 1000;
const SAID_MS = 2000;
const ANSWER_MS = 10_000; // an answer that takes longer is none
const COLUMN_NAME = /^[A-Za-z_]\w{0,127}$/;
const byId = (id) => document.getElementById(id);
let status = null;
let past = []; // points of the last hour
let happened = []; // and its events
let answered = null; // when the service did, by its clock
let ahead = 0; // of its clock to the one here
let announced = "";

const number = (value) => Math.round(value).toLocaleString("en");
const percent = (share) => `${(Math.floor(share * 1000) / 10).toFixed(1)} %`;
const seconds = (value) => {
  if (value === null || value === undefined) return "–";
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(value % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
};
const bytes = (count) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [value, unit] = [count, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
};

const moment = (at) => {
  const when = new Date(1000 * at);
  const today = when.toDateString() === new Date().toDateString();
  const day = { day: "numeric", month: "short", ...(when.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" }) };
  return today ? when.toLocaleTimeString("en-GB") : `${when.toLocaleDateString("en-GB", day)}, ${when.toLocaleTimeString("en-GB")}`;
};

const clockNow = () => Date.now() / 1000 + ahead;

// Only what has changed is touched: a reader's place, a selection and a tooltip stay.
function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

// The children of `place` are one for each key, in this order; what stays keeps its element, and the focus.
function keep(place, keys, make) {
  const there = new Map([...place.children].map((child) => [child.dataset.key, child]));
  const wanted = [...keys].map((key) => {
    const child = there.get(String(key)) ?? make(key);
    child.dataset.key = key;
    return child;
  });
  const focused = document.activeElement;
  if (wanted.length !== place.children.length || wanted.some((child, index) => place.children[index] !== child)) {
    place.replaceChildren(...wanted);
    if (place.contains(focused) && document.activeElement !== focused) focused.focus();
  }
  return wanted;
}

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

const look = (path) => ask(path, { signal: AbortSignal.timeout(ANSWER_MS) });

// What each condition without an error means, and what to do about it.
const MEANS = {
  serving: ["barriers come out", "nothing to do"],
  "catching up": ["there is a backlog, and it is being worked off", "wait, and see in the charts that it goes on"],
  starting: ["no batch has ended yet; the first build of a large topic may take long", "wait"],
  stopping: ["it was asked to stop, and ends the batch under way", "nothing to do"],
};

// Why a table is suspended, since when, and how to go on.
function suspendedVerdict(now, { fault, since, times, joined, deletes_at }) {
  const place = fault.where ? ` at ${fault.where}` : "";
  const again = times > 1 ? `, ${times} times in a row` : "";
  const further = joined.length ? ` Since then also ${joined.join(", ")}.` : "";
  const kept = deletes_at === null ? "" : ` What is unread is kept until ${moment(deletes_at)}.`;
  const why = `Suspended since ${moment(since)}${again}: ${fault.code}${place}: found ${fault.found}; expected ${fault.expected}.`;
  return [`${why}${further}${kept}`, fault.next_step];
}

// How the service ended before it was started, until its first batch.
function endBefore({ words, at, times, since, fault }) {
  const again = times > 1 ? `, ${times} times in a row since ${moment(since)}` : "";
  const why = fault === null ? "" : `: ${fault.code}${fault.where ? ` at ${fault.where}` : ""}: found ${fault.found}; expected ${fault.expected}`;
  return `The process before ${words} at ${moment(at)}${again}${why}.`;
}

// A start behind an error, which may well come again.
const failedBefore = (now) => now.condition === "starting" && now.reason === null && Boolean(now.last_end?.fault);

// The condition as one sentence, and the next step.
function verdict(now) {
  if (now.condition === "suspended" && now.last_end?.fault) return suspendedVerdict(now, now.last_end);
  if (failedBefore(now)) return [`Starting again. ${endBefore(now.last_end)}`, now.last_end.fault.next_step];
  const ready = now.ready ? "Ready" : "Not ready";
  const { reason } = now;
  if (reason) {
    const place = reason.where ? ` at ${reason.where}` : "";
    return [`${ready}: ${reason.code}${place}: found ${reason.found}; expected ${reason.expected}.`, reason.next_step];
  }
  const [means, next] = MEANS[now.condition] ?? [now.condition, "see the service's log"];
  const isLate = !now.ready && now.batch_age_s !== null && now.condition !== "stopping";
  return [`${ready}: ${means}${isLate ? `; no batch for ${seconds(now.batch_age_s)}` : ""}.`, next];
}

// `key` is what makes it news: a screen reader announces news, and not of every second that passes.
function showCondition(name, text, [sentence, next], isWrong, key, troubles = []) {
  byId("condition").className = `condition ${name.replaceAll(" ", "-")}`;
  setText(byId("condition"), text);
  const isFine = name === "serving" && !isWrong;
  byId("readiness").hidden = isFine && !troubles.length;
  byId("what").hidden = isFine;
  byId("readiness").classList.toggle("wrong", isWrong);
  setText(byId("verdict"), sentence);
  setText(byId("next-step"), `Next: ${next}.`);
  const shown = keep(byId("troubles"), troubles.map((each) => each.key), () => document.createElement("li"));
  troubles.forEach((each, index) => setText(shown[index], each.text));
  byId("troubles").hidden = !troubles.length;
  const news = [key, ...troubles.map((each) => each.key)].join();
  if (news === announced) return;
  announced = news;
  byId("announced").textContent = [sentence, `Next: ${next}.`, ...troubles.map((each) => each.text)].join(" ");
}

function showStatus(now, history, events) {
  const key = `${now.condition} ${now.ready} ${now.reason?.code} ${now.last_end?.times}`;
  showCondition(now.condition, now.condition, verdict(now), now.reason !== null || failedBefore(now), key, troublesOf(now));
  setText(byId("table"), now.table);
  setText(byId("upstream"), now.upstream);
  setText(byId("version"), `version ${now.version}`);
  showSentence(now);
  showHour(events, now.now);
  document.body.classList.remove("old");
  byId("as-of").hidden = true;
  byId("create").hidden = !now.can_steer || !now.jobs_known || now.condition === "suspended";
  byId("readonly").hidden = now.can_steer;
  const title = `${now.table}: ${now.condition}`;
  if (document.title !== title) document.title = title;
  showWaysOn(now);
  showFacts(now, history);
  showState(now);
  showUpstream(now);
  showTable(now);
}

const commandMade = () => {
  const row = document.createElement("p");
  const copy = document.createElement("button");
  Object.assign(copy, { type: "button", textContent: "Copy" });
  const code = document.createElement("code");
  const meaning = document.createElement("span");
  row.append(meaning, code, copy);
  copy.addEventListener("click", () => copyText(code, copy));
  return row;
};

// Without the clipboard, which browsers give to secure pages alone, the text is selected, for Ctrl-C.
async function copyText(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    setText(button, "Copied");
  } catch {
    window.getSelection().selectAllChildren(code);
    setText(button, "Selected");
  }
  setTimeout(() => setText(button, "Copy"), SAID_MS);
}

// The commands that lead on from a suspended table, and buttons that do the same.
function showWaysOn(now) {
  const { commands, meanings, skippable, new_field: field } = now.last_end ?? { commands: [], skippable: null, new_field: null };
  byId("ways-on").hidden = now.condition !== "suspended";
  keep(byId("commands"), commands, commandMade).forEach((row, index) => {
    setText(row.children[0], `${meanings[index][0].toUpperCase()}${meanings[index].slice(1)}:`);
    setText(row.children[1], commands[index]);
    row.lastElementChild.setAttribute("aria-label", `Copy ${commands[index]}`);
  });
  const leaveOut = byId("leave-out");
  leaveOut.hidden = skippable === null || !now.can_steer;
  if (skippable !== null) setText(leaveOut, `Leave record ${skippable} out`);
  byId("new-field").hidden = field === null || !now.can_steer;
  if (field !== null) {
    setText(byId("add-column"), `Add column ${field} as`);
    setText(byId("ignore-field"), `Ignore ${field}`);
    // Another name of the column needs the command.
    byId("add-column").hidden = byId("column-type").hidden = !COLUMN_NAME.test(field);
  }
  byId("try-again").hidden = !now.can_steer;
}

async function leadOn(button, way) {
  button.disabled = true;
  setText(byId("ways-on-answer"), "sent…");
  try {
    await change("suspended", "POST", way);
    setText(byId("ways-on-answer"), "sent: it goes on, or says here why not");
  } catch (problem) {
    setText(byId("ways-on-answer"), problem.message);
  } finally {
    button.disabled = false;
  }
}

byId("try-again").addEventListener("click", (event) => leadOn(event.currentTarget, {}));
byId("leave-out").addEventListener("click", (event) => leadOn(event.currentTarget, { skip_records: [status.last_end.skippable] }));

byId("add-column").addEventListener("click", (event) => leadOn(event.currentTarget, { alter: [{ add: { [status.last_end.new_field]: byId("column-type").value } }] }));
byId("ignore-field").addEventListener("click", (event) => leadOn(event.currentTarget, { alter: [{ ignore: status.last_end.new_field }] }));

async function showAway(problem) {
  if (problem.status === 401) {
    const why = "This service shows its status to those who have its token.";
    showCondition("unreachable", "token needed", [why, "enter the token"], true, "token");
    await login(why);
    return;
  }
  const now = clockNow();
  const since = answered === null ? "" : ` since ${moment(answered)}`;
  const next = "see whether its process runs, and how its log ends";
  showCondition("unreachable", "no answer", [`The service does not answer${since}.`, next], true, "away");
  byId("ways-on").hidden = true;
  if (answered === null) return;
  document.body.classList.add("old");
  setText(byId("as-of"), `All figures are as of ${moment(answered)}, ${seconds(now - answered)} ago.`);
  byId("as-of").hidden = false;
  showHour(happened, now, true);
}

async function refresh() {
  try {
    const problem = await Promise.all(["status", "history", "events"].map(look)).then(
      ([now, history, events]) => {
        [status, past, happened] = [now, history, events];
        [answered, ahead] = [now.now, now.now - Date.now() / 1000];
        showStatus(now, history, events);
        showJobs(now, history);
      },
      (refused) => refused,
    );
    await (problem ? showAway(problem) : showParts());
  } finally {
    setTimeout(refresh, EVERY_MS);
  }
}

for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close(""));
}
document.addEventListener("DOMContentLoaded", refresh);
