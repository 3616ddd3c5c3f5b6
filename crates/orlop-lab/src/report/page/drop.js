// Other reports, dropped onto the page: their devices join the list, to be shown side by side in turn.

/** Adds the devices of a report to the list. */
function addReport(app, report, name) {
  const several = app.entries.length > 0;
  report.meta.devices.forEach((device, index) => app.entries.push({ report, index, name, device: device.name }));
  const many = several || app.several;
  app.several = many;
  $("device").replaceChildren(...app.entries.map((entry, value) => el("option", { value,
    textContent: many ? `${entry.name}: ${entry.device}` : entry.device })));
  $("device-label").hidden = app.entries.length < 2;
}

/** Reads a file that was dropped: a page that `orlop report` wrote. */
async function readDropped(app, file) {
  const page = new DOMParser().parseFromString(await file.text(), "text/html");
  const data = page.getElementById("data")?.textContent.trim();
  if (!data || !page.getElementById("chart")) {
    return `${file.name} is not a report: run orlop report on it, and drop the page that it writes`;
  }
  addReport(app, await decode(data), page.title || file.name);
  return "";
}

function acceptDrops(app) {
  document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    await addFiles(app, event.dataTransfer.files);
  });
}

/** Adds files, and opens the first device of the first new report. */
async function addFiles(app, files) {
  const before = app.entries.length, told = [];
  for (const file of files) {
    const problem = await readDropped(app, file).catch((error) => `${file.name} cannot be read: ${error}`);
    if (problem) told.push(problem);
  }
  $("dropped").textContent = told.join("; ");
  $("dropped").hidden = !told.length;
  if (app.entries.length > before) {
    $("device").value = String(before);
    app.open(before);
  }
}
