// The state of the page, and the updates after a change.

class App {
  constructor(report) {
    this.report = report;
    Object.assign(this, { entries: [], several: false, mode: "blocks", by: "site", pinned: -1, hovered: -1, cursor: 0, search: "", chosenGroup: -1,
      freedStack: false, mapNote: "", box: null, due: new Set(), ready: false });
    this.chart = new Chart(this);
    this.map = new RegionMap(this);
  }

  /** Shows a device of the list. */
  open(entry) {
    const { report, index } = this.entries[entry], { meta, payload } = report;
    this.report = report;
    for (const id of ["title", "source"]) {
      $(id).replaceChildren(el("bdi", { textContent: meta[id] }));
      $(id).title = meta[id];
    }
    this.device = new Device(meta.devices[index], payload);
    this.segments = new SegmentLayers(this.device);
    document.querySelector("[data-mode=segments]").disabled = !this.device.meta.segments;
    if (this.mode === "segments" && !this.device.meta.segments) this.setMode("blocks");
    $("tab-whatif").hidden = !meta.what_if.length;
    if (meta.what_if.length) showWhatIf(this);
    this.view = new View(this.device);
    this.refusals = refusalClasses(this.device.meta);
    this.notes = notesOf(this.device, this.report.stacks);
    Object.assign(this, { pinned: -1, hovered: -1, chosenGroup: -1, cursor: this.device.peak });
    this.map.forget();
    checked("data-axis", this.view.axis);
    document.querySelector("main").classList.toggle("flat", !this.device.meta.segments && !this.report.meta.what_if.length);
    $("scrub").max = this.device.events;
    $("go-oom").hidden = !this.device.meta.out_of_memory.length;
    // Groups by the first property that has more than one value.
    const differs = (by) => new Groups(this.device, this.report, by).list.length > 1;
    this.group(["site", "text", "kind", "category", "stream", "size"].find(differs) ?? "site");
    $("grouping").value = this.by;
    document.querySelector("[data-axis=time]").disabled = !this.device.timed;
    showVerdict(this);
    showCards(this);
    showNotes(this);
    showRefusals(this);
    this.changed("size");
  }

  group(by) {
    this.by = by;
    this.groups = new Groups(this.device, this.report, by);
    this.chosenGroup = -1;
    this.colour();
  }

  /** Sets the colours by groups, search and theme. */
  colour() {
    this.wanted = this.findBlocks();
    this.blockColours = this.groups.blockColours(this.device, this.wanted);
    this.areaColours = this.groups.areaColours();
    if (this.chosenGroup >= 0) {
      const chosen = this.groups.areaOf(this.chosenGroup);
      this.areaColours = this.areaColours.map((pixel, area) => area === chosen ? pixel : mutedColour(area & 3));
    }
    this.changed("paint", "map", "legend");
  }

  /** A flag for each block that matches the search; null without a search. */
  findBlocks() {
    const { device, groups, chosenGroup, report: { stacks } } = this, text = this.search.trim().toLowerCase();
    $("found").textContent = "";
    if (!text && chosenGroup < 0) return null;
    const sites = text ? stacks.search(text) : null, tags = text ? stacks.texts.map((known) => known.toLowerCase().includes(text)) : null;
    const wanted = new Uint8Array(device.blocks);
    let found = 0, atCursor = 0;
    for (let i = 0; i < wanted.length; i++) {
      if (chosenGroup >= 0 && groups.of[i] !== chosenGroup) continue;
      if (text && !sites[device.site[i]] && !(device.text[i] && tags[device.text[i]])) continue;
      wanted[i] = 1;
      found++;
      if (device.born[i] <= this.cursor && device.freed[i] > this.cursor) atCursor += device.bytes[i];
    }
    if (text) $("found").textContent = found ? `${plural(found, "block")}, ${bytes(atCursor)} now` : "no matches";
    return wanted;
  }

  setSearch(text) {
    if ($("search").value !== text) $("search").value = text;
    this.search = text;
    if (!text) this.chosenGroup = -1;
    this.colour();
  }

  chooseGroup(rank) { this.chosenGroup = rank; this.colour(); }

  setMode(mode) {
    this.mode = mode;
    this.hovered = -1;
    checked("data-mode", mode);
    this.changed("view", "legend");
  }

  setAxis(axis) {
    if (axis === "time" && !this.device.timed) return;
    this.view.setAxis(axis);
    checked("data-axis", axis);
    this.changed("view");
  }

  /** Moves the cursor; with `follow` also the view. */
  setCursor(moment, follow = false) {
    this.cursor = Math.max(0, Math.min(this.device.events, moment));
    const { view } = this, x = view.place(this.cursor), span = view.x1 - view.x0;
    if (follow && (x < view.x0 || x >= view.x1)) {
      view.show(x - span / 2, x + span / 2);
      this.changed("view");
    }
    this.changed("over", "map", "legend");
    if (this.search) this.changed("found");
  }

  nextFailure() {
    const failures = this.device.meta.out_of_memory;
    const next = failures.find((failure) => failure.moment > this.cursor) ?? failures[0];
    if (next) this.setCursor(next.moment, true);
  }

  pin(block) {
    this.pinned = block;
    this.freedStack = false;
    showDetails(this);
    this.changed("paint", "map");
  }

  zoomTo(block) {
    const { device, view } = this, from = view.place(device.born[block]), to = view.place(Math.min(device.freed[block], device.events + 1));
    const margin = Math.max((to - from) * 0.15, view.axis === "event" ? 4 : 1000);
    view.show(from - margin, to + margin);
    this.changed("view");
  }

  /** Shows what is under the pointer. */
  hover({ x, y }, event) {
    const { chart, view, device } = this;
    // The raster does not show the current view yet.
    if (this.due.has("view") || this.due.has("size")) return;
    if (!this.ready || x < 0 || x > chart.plotWidth || y < -chart.top || y > chart.plotHeight) return this.leave();
    const moment = chart.momentAt(x), height = view.heightAt(y);
    if (y < 0) return this.hoverNote(x, y, event);
    if (this.mode === "segments") {
      const layer = this.segments.at(moment, height);
      return this.showTip(event, [...(layer < 0 ? [] : segmentLines(this, layer)), this.momentLine(moment)]);
    }
    if (this.mode === "areas") {
      const area = chart.raster.owners[chart.columnAt(x) * chart.raster.height + Math.floor((chart.plotHeight - y) * chart.ratio)] - 1;
      if (!(area >= 0)) return this.hideTip();
      let sum = 0;
      for (const block of device.present(moment)) if (this.groups.areaOf(this.groups.of[block]) === area) sum += device.bytes[block];
      return this.showTip(event, [el("b", { textContent: bytes(sum) }), el("p", { textContent: this.groups.areaName(area) }), this.momentLine(moment)]);
    }
    const block = device.blockAt(moment, height);
    if (block !== this.hovered) { this.hovered = block; this.changed("paint"); }
    if (block < 0) return this.showTip(event, [this.momentLine(moment)]);
    this.showTip(event, [...this.blockLines(block), this.momentLine(moment)]);
  }

  hoverNote(x, y, event) {
    const { chart, device } = this, lane = Math.floor((y + this.chart.top - 2) / LANE);
    const band = this.notes.bands.find((band) => {
      const [from, to] = chart.bandX(band);
      return band.lane === lane && from <= x + 1 && Math.max(to, from + 2) >= x - 1;
    });
    if (!band) return this.hideTip();
    this.showTip(event, [el("b", { textContent: band.text }), el("p", { textContent:
      `events ${count(band.from)} to ${count(band.to)}${device.clock(band.end - band.start)}` })]);
  }

  momentLine(moment) {
    const { device } = this;
    const reserved = device.meta.segments ? `, ${bytes(device.reserved[moment])} reserved` : "";
    return el("p", { className: "soft", textContent:
      `event ${count(moment)}${device.clock(device.timeOf(moment))}: ${bytes(device.live[moment])} live${reserved}` });
  }

  blockLines(block, more = "") {
    const { device, report: { stacks, meta } } = this, { born, freed, events } = device, unfreed = freed[block] > events;
    const life = device.timeOf(unfreed ? events : freed[block]) - device.timeOf(born[block]);
    const tags = [device.text[block] && stacks.texts[device.text[block]], device.kind[block] && meta.kinds[device.kind[block]], more].filter(Boolean);
    return [
      el("b", { textContent: bytes(device.bytes[block]) }), tags.length ? " " + tags.join(" · ") : "",
      el("p", { textContent: device.siteOf(block, stacks) }),
      el("p", { className: "soft", textContent: `${born[block] ? "event " + count(born[block]) : "before the first event"} to `
        + `${unfreed ? "the end" : count(freed[block])}${device.clock(life, unfreed ? ": at least " : ": ")}` }),
    ];
  }

  click({ x, y }) {
    const { chart, view, device } = this;
    if (x < 0 || x > chart.plotWidth || y < 0) return;
    const moment = chart.momentAt(x);
    this.setCursor(moment);
    if (this.mode === "blocks") this.pin(device.blockAt(moment, view.heightAt(y)));
  }

  leave() {
    this.hideTip();
    if (this.hovered >= 0) { this.hovered = -1; this.changed("paint"); }
  }

  showTip(event, lines) {
    const tip = $("tip");
    tip.replaceChildren(...lines);
    tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = tip;
    const x = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
    const y = event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18;
    tip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
  }

  hideTip() { $("tip").hidden = true; }

  showTab(name) {
    for (const tab of document.querySelectorAll("[role=tab]")) {
      const on = tab.id === "tab-" + name;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      $(tab.getAttribute("aria-controls")).hidden = !on;
    }
    if (name === "regions") this.changed("map");
  }

  /** Marks parts to be redrawn in the next frame. */
  changed(...what) {
    if (!this.device) return;
    if (!this.due.size) requestAnimationFrame(() => this.update());
    for (const name of what) this.due.add(name);
  }

  update() {
    const { due, chart } = this, now = (...names) => names.some((name) => due.has(name));
    if (now("size")) chart.measure();
    if (now("size", "view")) chart.draw();
    else if (now("paint")) chart.paint();
    else if (now("over")) chart.drawOver();
    if (now("size", "map")) { this.map.draw(); showMoment(this); }
    if (now("size", "legend")) {
      if (this.mode === "segments") showSegmentLegend(this);
      else showLegend(this);
      if (this.pinned < 0) showDetails(this);
    }
    if (now("found")) this.findBlocks();
    due.clear();
    this.ready = true;
  }
}

/** The program's annotations as bands, in lanes without overlap. */
function notesOf(device, stacks) {
  const ends = [], bands = device.meta.notes.map((note) => ({ ...note, text: stacks.texts[note.text] }));
  // Outer bands come first, and so are drawn above the inner ones.
  bands.sort((a, b) => a.start - b.start || b.end - a.end || a.from - b.from || b.to - a.to);
  const hues = new Map();
  for (const band of bands) {
    let lane = ends.findIndex(([to, end]) => to <= band.from && end <= band.start);
    if (lane < 0) lane = ends.length;
    ends[lane] = [Math.max(band.to, band.from + 1), Math.max(band.end, band.start)];
    band.lane = lane;
    if (!hues.has(band.text)) hues.set(band.text, hues.size % HUES.length);
    band.hue = hues.get(band.text);
  }
  return { bands, lanes: Math.min(ends.length, LANES) };
}

/** Marks the active button of a group. */
function checked(attribute, value) {
  for (const button of document.querySelectorAll(`[${attribute}]`)) {
    const on = button.getAttribute(attribute) === value;
    button.setAttribute("aria-checked", on);
    button.tabIndex = on ? 0 : -1;
  }
}

/** Arrow keys move through a group of buttons, as through radio buttons. */
function arrows(group) {
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const buttons = [...group.querySelectorAll("button:not([hidden])")];
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
    event.preventDefault();
    event.stopPropagation();
  });
}

function wire(app) {
  const { meta } = app.report;
  addReport(app, app.report, meta.title);
  acceptDrops(app);
  $("device").addEventListener("change", (event) => app.open(Number(event.target.value)));
  $("grouping").append(...Object.entries(GROUPINGS).map(([value, { one }]) => el("option", { value, textContent: one })));
  $("grouping").addEventListener("change", (event) => { app.group(event.target.value); app.changed("view"); });
  for (const button of document.querySelectorAll("[data-mode]")) button.addEventListener("click", () => app.setMode(button.dataset.mode));
  for (const button of document.querySelectorAll("[data-axis]")) button.addEventListener("click", () => app.setAxis(button.dataset.axis));
  for (const group of document.querySelectorAll("[role=radiogroup], [role=tablist]")) arrows(group);
  for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => app.showTab(tab.id.slice(4)));
  $("search").addEventListener("input", (event) => app.setSearch(event.target.value));
  $("search").addEventListener("keydown", (event) => { if (event.key === "Escape") { app.setSearch(""); $("chart").focus(); } });
  $("go-peak").addEventListener("click", () => app.setCursor(app.device.peak, true));
  $("go-oom").addEventListener("click", () => app.nextFailure());
  $("fit").addEventListener("click", () => { app.view.showAll(); app.changed("view"); });
  $("fit-bytes").addEventListener("click", () => { app.view.fitBytes(); app.changed("view"); });
  $("scrub").addEventListener("input", (event) => app.setCursor(Number(event.target.value), true));
  $("step-back").addEventListener("click", () => app.setCursor(app.cursor - 1, true));
  $("step-on").addEventListener("click", () => app.setCursor(app.cursor + 1, true));
  $("order").addEventListener("change", (event) => { app.map.order = event.target.value; app.changed("map"); });
  darkness.addEventListener("change", () => { app.colour(); app.changed("size"); });
  new ResizeObserver(() => app.changed("size")).observe($("chart"));
  new ResizeObserver(() => app.changed("map")).observe($("map"));
}

async function main() {
  const report = await load();
  const app = new App(report);
  wire(app);
  if (!report.meta.devices.length) { $("busy").textContent = "The history has no devices."; return ready(); }
  // The verdicts are sorted: first the device that failed.
  const first = report.meta.devices.findIndex((device) => device.device === report.meta.verdicts[0]?.device);
  app.open(Math.max(first, 0));
  $("device").value = String(Math.max(first, 0));
  listen(app);
  checked("data-mode", app.mode);
  app.showTab("regions");
  $("busy").remove();
  window.orlopReport = { app, shortened, bench: (frames) => bench(app, frames) };
  ready();
}

/** Signals to tests that the page is complete. */
function ready() { document.documentElement.dataset.ready = "true"; }

main().catch((error) => {
  $("busy").textContent = `This page cannot be shown: ${error}`;
  throw error;
});
