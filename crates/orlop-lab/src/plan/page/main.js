// The state of the page, its texts, and what the user does.

class App {
  constructor(data) {
    Object.assign(this, { packing: new Packing(data), hovered: -1, kept: -1, chosen: -1, search: "", due: false });
    this.view = new Window(this.packing);
    this.chart = new Chart(this);
    this.matches = (i) => !this.search || this.packing.nameOf(i).toLowerCase().includes(this.search);
  }

  changed() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => { this.due = false; this.chart.draw(); document.documentElement.dataset.ready = "true"; });
  }

  keep(buffer) { this.kept = buffer; showDetails(this); this.changed(); }
  choose(rank) { this.chosen = this.chosen === rank ? -1 : rank; showLegend(this); this.changed(); }

  find(text) {
    this.search = text.trim().toLowerCase();
    let found = 0;
    if (this.search) for (let i = 0; i < this.packing.count; i++) found += this.matches(i) ? 1 : 0;
    $("found").textContent = this.search ? plural(found, "buffer") : "";
    this.changed();
  }

  goToPeak() {
    const { packing, view } = this, span = (packing.last - packing.first) / 8;
    if (view.x1 - view.x0 > span) [view.x0, view.x1] = [0, span];
    view.centre(packing.fullest.time);
    this.changed();
  }
}

function showCards({ packing }) {
  const { peak, bound, verdict, unplanned, unit } = packing;
  const least = unit === "step" ? "no plan for this order is smaller" : "no plan is smaller";
  const card = (title, value, note, kind = "") => el("div", { className: kind }, el("dt", { textContent: title }), el("dd", { textContent: value }, el("small", { textContent: note })));
  const cards = [
    card("Plan", bytes(peak), plural(packing.count, "buffer")),
    card("Lower bound", bytes(bound), "the greatest load, of aligned bytes"),
    card("Verdict", verdict, verdict === "optimal" ? least : "of the smallest plan", verdict === "optimal" ? "good" : ""),
  ];
  const times = (other) => peak ? (other / peak).toFixed(other / peak < 10 ? 2 : 0) + " × the plan" : "";
  if (unplanned?.torch) cards.push(card("PyTorch's allocator", bytes(unplanned.torch), times(unplanned.torch)));
  if (unplanned) cards.push(card("Nothing shared", bytes(unplanned.sum), times(unplanned.sum)));
  $("cards").replaceChildren(...cards);
}

function showLegend(app) {
  const { packing } = app;
  $("legend-title").textContent = packing.named ? "Names" : "Sizes";
  $("legend").replaceChildren(...packing.groups.slice(0, 200).map((group) => {
    const mark = el("i");
    mark.style.background = css(groupColour(group.rank));
    const what = el("span", { className: "what", textContent: group.name, title: `${group.name}: ${plural(group.buffers, "buffer")}` });
    const button = el("button", { onclick: () => app.choose(group.rank) }, mark, what, el("span", { className: "size", textContent: group.peak ? bytes(group.peak) : "–" }));
    button.setAttribute("aria-pressed", String(app.chosen === group.rank));
    return el("li", {}, button);
  }));
}

/** The offsets and the lifetime of a buffer, as pairs of texts. */
function facts(packing, i) {
  const { unit } = packing, length = packing.end[i] - packing.start[i];
  return [
    ["offset", `${count(packing.offset[i])} to ${count(packing.offset[i] + packing.size[i])}`],
    ["live", `${unit} ${count(packing.start[i])} to ${count(packing.end[i] - 1)} (${count(length)})`],
  ];
}

function showDetails(app) {
  const { packing, kept } = app;
  if (kept < 0) {
    $("details").replaceChildren(el("p", { className: "none", textContent: "Click a buffer to keep it here." }));
    return;
  }
  const { before, after } = packing.around(kept);
  const link = (i) => el("button", { textContent: packing.nameOf(i), onclick: () => app.keep(i) });
  const rows = [...facts(packing, kept), ["bytes", count(packing.size[kept])]].flatMap(([name, text]) => [el("dt", { textContent: name }), el("dd", { textContent: text })]);
  if (before >= 0) rows.push(el("dt", { textContent: "bytes before" }), el("dd", {}, link(before)));
  if (after >= 0) rows.push(el("dt", { textContent: "bytes after" }), el("dd", {}, link(after)));
  $("details").replaceChildren(
    el("p", { className: "big", textContent: bytes(packing.size[kept]) }),
    el("p", { className: "what", textContent: packing.nameOf(kept) }), el("dl", {}, ...rows));
}

function showTip(app, event) {
  const { packing, hovered } = app, tip = $("tip");
  tip.hidden = hovered < 0;
  if (tip.hidden) return;
  tip.replaceChildren(el("b", { textContent: bytes(packing.size[hovered]) }), el("p", { textContent: packing.nameOf(hovered) }),
    ...facts(packing, hovered).map(([name, text]) => el("p", { className: "soft", textContent: name + " " + text })));
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8), y = event.clientY + 16;
  tip.style.transform = `translate(${Math.max(x, 4)}px, ${y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : y}px)`;
}

function listen(app) {
  const { view, packing } = app, chart = $("chart");
  const place = (event) => {
    const box = chart.getBoundingClientRect();
    return [event.clientX - box.x - LEFT, event.clientY - box.y - TOP];
  };
  const hover = (event) => {
    const [x, y] = place(event), inside = x >= 0 && y >= 0 && x < view.width && y < view.height;
    const found = inside ? packing.at(view.timeAt(x), view.offsetAt(y)) : -1;
    if (found !== app.hovered) { app.hovered = found; app.changed(); }
    showTip(app, event);
  };
  let drag = null;
  chart.addEventListener("wheel", (event) => {
    event.preventDefault();
    const factor = Math.exp((event.deltaY || event.deltaX) * 0.0022);
    view.zoom(event.altKey ? 1 : factor, event.shiftKey ? 1 : factor, ...place(event));
    hover(event);
    app.changed();
  }, { passive: false });
  chart.addEventListener("pointerdown", (event) => {
    chart.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, y: event.clientY, moved: false };
  });
  chart.addEventListener("pointermove", (event) => {
    if (!drag) { hover(event); return; }
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    Object.assign(drag, { x: event.clientX, y: event.clientY, moved: true });
    chart.classList.add("dragging");
    $("tip").hidden = true;
    view.pan(dx, dy);
    app.changed();
  });
  const end = (event) => {
    if (drag && !drag.moved && event.type === "pointerup") { hover(event); app.keep(app.hovered); }
    drag = null;
    chart.classList.remove("dragging");
  };
  chart.addEventListener("pointerup", end);
  chart.addEventListener("pointercancel", end);
  chart.addEventListener("pointerleave", () => { app.hovered = -1; $("tip").hidden = true; app.changed(); });
  chart.addEventListener("dblclick", () => showAll());

  const overview = $("overview");
  const jump = (event) => {
    const box = overview.getBoundingClientRect();
    view.centre(packing.first + (event.clientX - box.x - LEFT) / view.width * (packing.last - packing.first));
    app.changed();
  };
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); jump(event); });
  overview.addEventListener("pointermove", (event) => { if (event.buttons & 1) jump(event); });

  const showAll = () => { view.showAll(); app.changed(); };
  const zoom = (factor) => { view.zoom(factor, factor, view.width / 2, view.height / 2); app.changed(); };
  const pan = (dx, dy) => { view.pan(dx, dy); app.changed(); };
  $("fit").onclick = showAll;
  $("closer").onclick = () => zoom(0.7);
  $("farther").onclick = () => zoom(1 / 0.7);
  $("go-peak").onclick = () => app.goToPeak();
  $("search").oninput = () => app.find($("search").value);
  const keys = {
    "0": showAll, "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), p: () => app.goToPeak(), Escape: () => app.keep(-1),
    ArrowLeft: () => pan(80, 0), ArrowRight: () => pan(-80, 0), ArrowUp: () => pan(0, 60), ArrowDown: () => pan(0, -60),
    "/": () => $("search").focus(),
  };
  addEventListener("keydown", (event) => {
    if (event.target === $("search")) { if (event.key === "Escape") $("search").blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  new ResizeObserver(() => app.changed()).observe(chart);
  darkness.addEventListener("change", () => { showLegend(app); app.changed(); });
}

const app = new App(JSON.parse($("data").textContent));
$("title").textContent = app.packing.title;
$("source").textContent = app.packing.source;
showCards(app);
showLegend(app);
showDetails(app);
listen(app);
app.changed();
globalThis.orlopPlan = app;
