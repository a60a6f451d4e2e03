// The form for a new job: what it will cost is shown before it can be created.
"use strict";

const form = byId("new-job").querySelector("form");
const createButton = form.querySelector("[value=create]");
let planned = null;
let columnsShown = [];
const FORMATS = {
  upsert: "upsert: each record is the row as it is now, by its key. For most readers: a table, a cache, a search index.",
  debezium: "debezium: the row before and after, in Debezium's envelope. For readers that expect Debezium's events.",
  change: "change: operation, row before and after, with the barriers among them. For readers that follow barriers, and for further services.",
  append: "append: rows that have no key and never change. For an upstream of the same format.",
};

// What the form does not say by itself: where records and barriers go, and what a format is for.
function explain() {
  const { name, output, format } = form.elements;
  const topic = output.value || name.value;
  output.placeholder = name.value || "the job's name";
  const barriers = format.value === "change" ? "among its records" : `in ${topic ? `${topic}.barriers` : "<output>.barriers"}`;
  setText(byId("output-why"), `Left empty it is the job's name. It is made if it is not there; its barriers are ${barriers}.`);
  setText(byId("format-why"), FORMATS[format.value]);
}

const MASKS = [["", "as it is"], ["hash", "hashed"], ...[1, 2, 3, 4, 6, 8].map((count) => [count, `first ${plural(count, "character")}`]), ["null", "null"]];
const OF_COLUMNS = ["columns", "sent-as", "mask", "extent"];
const words = (text) => text.split(",").map((word) => word.trim()).filter(Boolean);

// A column as a job declares it: its name, or the output's name with the column or its mask.
function columnOf(name, sentAs, mask) {
  const shown = sentAs || name;
  if (mask === "null") return { [shown]: null };
  if (mask === "hash") return { [shown]: `hash(${name})` };
  if (mask) return { [shown]: `prefix(${name}, ${mask})` };
  return shown === name ? name : { [shown]: name };
}

function declared() {
  const fields = new FormData(form);
  const job = {};
  for (const [name, value] of fields) if (!OF_COLUMNS.includes(name) && value !== "") job[name] = value;
  for (const list of ["key", "headers"]) if (list in job) job[list] = words(job[list]);
  job.output ??= job.name;
  if ("rate_limit" in job) job.rate_limit = Number(job.rate_limit);
  if ("paused" in job) job.paused = true;
  const [extent, which] = fields.get("extent").split("=");
  if (extent) job[extent] = which;
  const chosen = new Set(fields.getAll("columns"));
  const [names, masks] = [fields.getAll("sent-as"), fields.getAll("mask")];
  const columns = columnsShown.map((name, index) => columnOf(name, names[index].trim(), masks[index])).filter((_, index) => chosen.has(columnsShown[index]));
  if (columns.length !== columnsShown.length || columns.some((each) => typeof each !== "string")) job.columns = columns;
  return job;
}

function planText(plan) {
  const kept = plan.kept_share === null ? "" : `, of which ${(plan.kept_share * 100).toFixed(1)} % of a sample pass the filter`;
  const sent = plan.output_rows === null ? "" : ` About ${number(plan.output_rows)} records, ${bytes(plan.output_bytes ?? 0)} before compression`;
  const takes = plan.seconds === null ? "" : `, ${seconds(plan.seconds)} at the least`;
  return `Reads ${number(plan.rows)} rows${kept}.${sent}${takes}. As ${plan.form}, into ${plan.output_partitions} partitions. Nothing is in its way.`;
}

function say(text, isWrong = false) {
  byId("new-job-plan").textContent = text;
  byId("new-job-plan").classList.toggle("late", isWrong);
}

async function check() {
  const job = declared();
  say("…");
  const plan = await change("jobs/plan", "POST", job);
  planned = JSON.stringify(job);
  createButton.disabled = false;
  say(planText(plan));
}

async function create() {
  if (JSON.stringify(declared()) !== planned) return check();
  await change("jobs", "POST", JSON.parse(planned));
  say("sent: it begins with the next barrier");
  createButton.disabled = true;
  return undefined;
}

function nameRow(name) {
  const [row, head, sentAs, mask] = [made("tr"), made("th"), made("input"), made("select")];
  head.scope = "row";
  setText(head, name);
  Object.assign(sentAs, { name: "sent-as", placeholder: name, maxLength: 128, autocomplete: "off", spellcheck: false });
  sentAs.setAttribute("aria-label", `Name of ${name} in the output`);
  mask.name = "mask";
  mask.setAttribute("aria-label", `Value of ${name} in the output`);
  mask.append(...MASKS.map(([value, text]) => new Option(text, value)));
  for (const control of [sentAs, mask]) {
    const cell = made("td");
    cell.append(control);
    row.append(cell);
  }
  row.prepend(head);
  return row;
}

byId("create").addEventListener("click", () => {
  columnsShown = [...status.columns];
  byId("new-job-names").tBodies[0].replaceChildren(...columnsShown.map(nameRow));
  const boxes = columnsShown.map((name) => {
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", name: "columns", value: name, checked: true });
    label.append(box, ` ${name}`);
    return label;
  });
  byId("new-job-columns").replaceChildren(...boxes);
  createButton.disabled = true;
  say("");
  explain();
  byId("new-job").showModal();
});

// A plan is that of the fields as they were.
form.addEventListener("input", () => {
  createButton.disabled = true;
  explain();
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await (event.submitter?.value === "create" ? create() : check());
  } catch (problem) {
    createButton.disabled = true;
    say(problem.message, true);
  }
});
