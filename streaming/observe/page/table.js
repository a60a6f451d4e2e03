// What can be asked of the table as a whole: how many workers it has, and what becomes of fields that are no columns.
"use strict";

byId("undeclared-type").append(...[...byId("column-type").options].map((each) => each.cloneNode(true)));

// Sends a request, and says beside its button what came of it.
async function askTable(answer, path, content, sent) {
  setText(byId(answer), "sending…");
  try {
    await change(path, "POST", content);
    setText(byId(answer), sent);
  } catch (problem) {
    setText(byId(answer), problem.message);
  }
}

const alterTable = (alteration, doing) => askTable("undeclared-answer", "alter", { changes: [alteration] }, `sent: ${doing} with the next barrier`);

function showTable(now) {
  const steers = now.can_steer && now.condition !== "suspended";
  byId("lanes-control").hidden = !steers;
  byId("lanes-wanted").placeholder = now.lanes ? String(now.lanes) : "";
  const fields = now.fields.undeclared;
  byId("undeclared").hidden = !steers || !fields.length;
  keep(byId("undeclared-field"), fields, (name) => new Option(name, name));
  byId("undeclared-add").disabled = !COLUMN_NAME.test(byId("undeclared-field").value);
}

byId("undeclared-field").addEventListener("change", () => showTable(status));
byId("undeclared-add").addEventListener("click", () => {
  const name = byId("undeclared-field").value;
  // Such a field was ignored so far, or it would not be listed.
  alterTable({ add: { [name]: byId("undeclared-type").value }, accept_missing: true }, `column ${name} comes, without its values so far,`);
});
byId("undeclared-ignore").addEventListener("click", () => {
  const name = byId("undeclared-field").value;
  alterTable({ ignore: name }, `field ${name} is ignored`);
});
byId("set-lanes").addEventListener("click", () => {
  const lanes = Number(byId("lanes-wanted").value);
  if (lanes) askTable("lanes-answer", "lanes", { lanes }, `sent: ${plural(lanes, "worker")} behind the next barrier`);
});
