// The text of the page: the figures at the top, the groups, the selected block, and the tables at the bottom.

/** The main figures of the device. */
function showCards(app) {
  const { device, view } = app, { meta, live, reserved, peak, peakReserved } = device;
  const when = (moment) => `event ${count(moment)}`;
  const cards = [["Peak live", bytes(live[peak]), when(peak)]];
  if (meta.segments) {
    const { sums } = device.mapAt(peakReserved), ratio = live[peak] ? reserved[peakReserved] / live[peak] : 0;
    cards.push(["Peak reserved", bytes(reserved[peakReserved]), ratio ? `${ratio.toFixed(3)} × peak live` : ""]);
    cards.push(["Free at that moment", bytes(sums.free), `in ${plural(sums.holes, "hole")}`]);
    cards.push(["Largest hole there", bytes(sums.largest), sums.free ? `fragmentation ${percent(1 - sums.largest / sums.free)}` : ""]);
  }
  else if (meta.counted_reserved) {
    const ratio = live[peak] ? `, ${(meta.counted_reserved / live[peak]).toFixed(3)} × peak live` : "";
    cards.push(["Peak reserved", bytes(meta.counted_reserved), `as counted by the source${ratio}`]);
  }
  cards.push(["Live at the end", bytes(live[device.events]), plural(device.present(device.events).length, "block")]);
  cards.push(["Events", count(device.events), device.clock(device.timeOf(device.events), "")]);
  if (meta.memory) cards.push(["Device memory", bytes(meta.memory), meta.segments ? percent(reserved[peakReserved] / meta.memory) + " reserved" : ""]);
  // The largest, which the verdict is about.
  const failures = meta.out_of_memory.map((failure) => failure.bytes);
  const requested = `${failures.length > 1 ? "up to " : ""}${bytes(failures.reduce((one, other) => Math.max(one, other), 0))} requested`;
  if (failures.length) cards.push(["Out of memory", plural(failures.length, "time"), requested, "bad"]);
  $("cards").replaceChildren(...cards.map(([name, value, more, className = ""]) => el("div", { className },
    el("dt", { textContent: name }), el("dd", {}, value, el("small", { textContent: more || "\u00a0" })))));
  return view;
}

/** The verdict on the device: what happened, which setting helps, what to do next. */
function showVerdict(app) {
  const verdict = app.report.meta.verdicts.find((one) => one.device === app.device.meta.device), place = $("verdict");
  place.hidden = !verdict;
  if (verdict) place.replaceChildren(...[verdict.finding, verdict.remedy, verdict.next].map((text) => el("p", { textContent: text })));
}

/** A text that is cut at its start where there is no room: names differ at their end. */
function ended(className, text) { return el("span", { className }, el("bdi", { textContent: text })); }

/** The groups with their colours and live bytes at the cursor. A click on a group selects its blocks. */
function showLegend(app) {
  const { device, groups, cursor } = app, sums = groups.liveAt(device, cursor);
  $("legend-title").textContent = GROUPINGS[groups.by].title;
  $("legend-when").textContent = "live at the cursor";
  const order = groups.list.map((group) => group.rank).sort((a, b) => sums[b] - sums[a] || a - b).slice(0, 150);
  const items = order.map((rank) => {
    const group = groups.list[rank], chosen = app.chosenGroup === rank;
    const button = el("button", { title: `${group.name}\n${plural(group.blocks, "block")}, ${bytes(group.total)} in all, ${bytes(group.peak)} at the peak` },
      el("i", { style: `background:${css(groupColour(rank, 1))}` }),
      ended("what", group.name),
      el("span", { className: "size", textContent: sums[rank] ? bytes(sums[rank]) : "–" }));
    button.setAttribute("aria-pressed", chosen);
    button.addEventListener("click", () => app.chooseGroup(chosen ? -1 : rank));
    return el("li", {}, button);
  });
  if (groups.list.length > order.length) items.push(el("li", { className: "none", textContent: `and ${count(groups.list.length - order.length)} more` }));
  $("legend").replaceChildren(...items);
}

function row(name, value) { return [el("dt", { textContent: name }), el("dd", { textContent: value })]; }

function framesOf(stacks, site) {
  const frames = stacks.of(site);
  if (!frames.length) return el("p", { className: "none", textContent: "The source has no frames." });
  const isPython = (frame) => frame.file.endsWith(".py");
  const first = Math.max(0, frames.findIndex(isPython)), python = frames.some(isPython);
  const list = (part) => el("ol", { className: "frames" }, ...part.map((frame) => {
    const position = frame.line ? `${frame.file}:${frame.line}` : frame.file === "??" ? "" : frame.file;
    return el("li", { className: python && !isPython(frame) ? "inner" : "" },
      el("b", { textContent: frame.name }), position ? el("span", { textContent: position }) : "");
  }));
  // The frames below the first Python frame are those of the recorder, the allocator and the dispatcher.
  const folded = first > 2 ? el("details", { className: "folded" },
    el("summary", { textContent: plural(first, "frame") + " below Python" }), list(frames.slice(0, first))) : "";
  return el("div", {}, folded, list(frames.slice(folded ? first : 0)));
}

/** The largest blocks, while no block is selected. */
function showLargest(app, element) {
  const { device, cursor, report: { stacks } } = app;
  const largest = device.largestAt(cursor, 40);
  element.replaceChildren(
    el("p", { className: "none", textContent: "Click a block for its lifetime and allocation stack. The largest blocks at the cursor:" }),
    el("ol", { className: "blocks" }, ...largest.map((block) => el("li", {}, el("button", { onclick: () => app.pin(block), title: device.siteOf(block, stacks) },
      el("i", { style: `background:${css(groupColour(app.groups.of[block], 1))}` }),
      el("span", { className: "size", textContent: bytes(device.bytes[block]) }),
      ended("what", device.siteOf(block, stacks)))))));
}

/** The details of the selected block. */
function showDetails(app) {
  const { device, pinned: block, report: { stacks, meta }, freedStack } = app, element = $("details");
  if (block < 0) {
    showLargest(app, element);
    return;
  }
  const { born, freed, done, events } = device, unfreed = freed[block] > events;
  const life = (unfreed ? device.timeOf(events) : device.timeOf(freed[block])) - device.timeOf(born[block]);
  const rows = [
    ...row("requested", `${count(device.bytes[block])} bytes`),
    ...(device.rest[block] ? row("occupies", `${count(device.bytes[block] + device.rest[block])} bytes`) : []),
    ...row("address", device.addressText(device.address[block])),
    ...row("call site", device.siteOf(block, stacks)),
    ...(device.text[block] ? row("tag", stacks.texts[device.text[block]]) : []),
    ...row("category", meta.categories[device.category[block]]),
    ...(device.kind[block] ? row("kind", meta.kinds[device.kind[block]]) : []),
    ...(device.stream[block] ? row("stream", device.meta.streams[device.stream[block]]) : []),
    ...row("allocated", born[block] ? `event ${count(born[block])}${device.clock(device.timeOf(born[block]))}` : "before the first event"),
    ...row("freed", unfreed ? "never" : `event ${count(freed[block])}${device.clock(device.timeOf(freed[block]))}`),
    ...(done[block] > freed[block] ? row("free completed", done[block] > events ? "never" : `event ${count(done[block])}`) : []),
    ...row("lifetime", `${unfreed ? "at least " : ""}${plural((unfreed ? events + 1 : freed[block]) - born[block], "event")}${device.clock(life)}`),
  ];
  const choice = (text, on, act) => {
    const button = el("button", { textContent: text, onclick: act });
    button.setAttribute("aria-pressed", on);
    return button;
  };
  const bar = el("div", { className: "bar" },
    choice("‹ Largest", false, () => app.pin(-1)),
    choice("Zoom to lifetime", false, () => app.zoomTo(block)),
    device.freed_by[block] && !unfreed ? choice(freedStack ? "Allocation stack" : "Stack of the free", freedStack, () => {
      app.freedStack = !freedStack;
      showDetails(app);
    }) : null);
  element.replaceChildren(el("p", { className: "big", textContent: bytes(device.bytes[block]) }), el("dl", {}, ...rows), bar,
    framesOf(stacks, freedStack && !unfreed ? device.freed_by[block] : device.site[block]));
  element.scrollTop = 0;
}

const VERDICTS = { recorded: "as recorded", baseline: "baseline", better: "better", same: "the same", worse: "worse", does_not_fit: "does not fit", unknown: "unknown" };
const WHAT_IF = [
  ["name", "Allocator", ""], ["settings", "Settings", ""], ["peak_reserved", "Peak reserved", "number"], ["ratio", "× peak live", "number"],
  ["without_retry", "Without retry", "number"], ["smallest_memory", "Smallest memory", "number"], ["verdict", "Verdict", ""], ["note", "", ""],
];

/** The table of other allocators and settings, sorted by any column. */
function showWhatIf(app, by = "peak_reserved", down = false) {
  const rows = app.report.meta.what_if, table = $("whatif");
  const value = (entry) => entry[by] ?? (typeof entry[by] === "string" ? "" : Infinity);
  const sorted = rows.slice().sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1));
  const max = Math.max(...rows.map((entry) => entry.peak_reserved ?? 0));
  const head = el("tr", {}, ...WHAT_IF.map(([key, title, className]) => {
    const cell = el("th", { className, scope: "col" });
    if (!title) return cell;
    if (key === by) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    cell.append(el("button", { textContent: title + (key === by ? (down ? " ▾" : " ▴") : ""), className, onclick: () => {
      showWhatIf(app, key, key === by && !down);
      $("whatif").querySelector("[aria-sort] button").focus();
    } }));
    return cell;
  }));
  const body = sorted.map((entry) => el("tr", {},
    el("td", { textContent: entry.name }), el("td", {}, entry.settings ? el("code", { textContent: entry.settings }) : ""),
    el("td", { className: "number" }, entry.peak_reserved === null ? "–" : bytes(entry.peak_reserved), entry.peak_reserved === null ? "" :
      el("span", { className: "share", style: `width:${(entry.peak_reserved / max * 90).toFixed(1)}px` }), el("span", { className: "share", style: `width:${(90 - (entry.peak_reserved ?? 0) / max * 90).toFixed(1)}px;opacity:0;margin:0` })),
    el("td", { className: "number", textContent: entry.ratio === null ? "–" : entry.ratio.toFixed(3) }),
    el("td", { className: "number", textContent: entry.without_retry === null ? "–" : bytes(entry.without_retry) }),
    el("td", { className: "number", textContent: entry.smallest_memory === null ? "–" : bytes(entry.smallest_memory) }),
    el("td", { className: entry.verdict, textContent: VERDICTS[entry.verdict] }),
    el("td", { textContent: entry.note })));
  table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...body));
}

/** The settings, and the warnings of the reader. */
function showNotes(app) {
  const { meta } = app.report, parts = [];
  if (meta.settings) parts.push(el("h3", { textContent: "Settings" }), el("p", {}, el("code", { textContent: meta.settings })));
  parts.push(el("h3", { textContent: "Warnings about the source" }));
  parts.push(meta.warnings.length ? el("ul", {}, ...meta.warnings.slice(0, 500).map((text) => el("li", { textContent: text }))) : el("p", { textContent: "None." }));
  $("panel-notes").replaceChildren(...parts);
  $("tab-notes").textContent = meta.warning_count ? `Notes (${count(meta.warning_count)})` : "Notes";
  $("panel-help").replaceChildren(el("dl", {}, ...KEYS.flatMap(([keys, what]) => [
    el("dt", {}, ...keys.split("|").flatMap((key, i) => [i ? " " : "", el("kbd", { textContent: key })])), el("dd", { textContent: what })])));
}

/** The moment of the cursor, as text. */
function showMoment(app) {
  const { device, cursor, map, report: { stacks } } = app, { sums } = map.map ?? device.mapAt(cursor);
  $("scrub").value = cursor;
  const when = `event ${count(cursor)} of ${count(device.events)}${device.clock(device.timeOf(cursor), " · ")} · `;
  $("moment").replaceChildren(when, ended("what", device.eventText(cursor, stacks)));
  const bold = (text) => el("b", { textContent: text }), parts = [bold(bytes(device.live[cursor])), " live"];
  if (device.meta.segments) {
    parts.push(" in ", bold(bytes(sums.reserved)), ` reserved, ${plural(app.map.map.segments.length, "segment")} · `, bold(bytes(sums.free)),
      ` free in ${plural(sums.holes, "hole")}`);
    if (sums.free) parts.push(", largest ", bold(bytes(sums.largest)), `, fragmentation ${percent(1 - sums.largest / sums.free)}`);
    if (sums.rests) parts.push(` · ${bytes(sums.rests)} rounding`);
    if (sums.pending) parts.push(` · ${bytes(sums.pending)} freed, in use by a stream`);
    if (sums.outside) parts.push(` · ${plural(sums.outside, "block")} in no segment`);
  }
  if (app.mapNote) parts.push(" · " + app.mapNote);
  $("moment-figures").replaceChildren(...parts);
}

