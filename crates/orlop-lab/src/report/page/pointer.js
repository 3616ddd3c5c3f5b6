// Mouse, touch and keyboard input of the chart.

/** A press that moves less than this is a click. */
const CLICK = 4;

function listen(app) {
  const { chart } = app, box = chart.box, touches = new Map();
  let press = null, spread = 0;
  const inPlot = (event) => {
    const frame = box.getBoundingClientRect();
    return { x: event.clientX - frame.left - LEFT, y: event.clientY - frame.top - chart.top };
  };

  box.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = inPlot(event), unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0022))));
    // A trackpad's pinch arrives as a wheel with ctrl.
    if (event.shiftKey) app.view.zoom(1, Math.exp(Math.max(-1, Math.min(1, (event.deltaY || event.deltaX) * unit * 0.0022))), x, y);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) app.view.pan(-event.deltaX * unit, 0);
    else app.view.zoom(factor, event.ctrlKey ? factor : 1, x, y);
    app.changed("view");
  }, { passive: false });

  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    box.setPointerCapture(event.pointerId);
    const at = inPlot(event);
    touches.set(event.pointerId, at);
    if (touches.size === 2) spread = distance(touches);
    press = { ...at, lastX: at.x, lastY: at.y, moved: false, select: event.shiftKey, cursor: at.y > chart.plotHeight };
    if (press.cursor) app.setCursor(chart.momentAt(at.x));
  });

  box.addEventListener("pointermove", (event) => {
    const at = inPlot(event);
    if (!touches.has(event.pointerId)) return app.hover(at, event);
    touches.set(event.pointerId, at);
    if (touches.size === 2) {
      const now = distance(touches), [one, two] = [...touches.values()];
      app.view.zoom(spread / Math.max(now, 1), 1, (one.x + two.x) / 2, (one.y + two.y) / 2);
      spread = now;
      press.moved = true;
      return app.changed("view");
    }
    if (Math.hypot(at.x - press.x, at.y - press.y) > CLICK) press.moved = true;
    if (!press.moved) return;
    app.hideTip();
    if (press.cursor) app.setCursor(chart.momentAt(at.x));
    else if (press.select) {
      app.box = { from: Math.min(press.x, at.x), to: Math.max(press.x, at.x) };
      app.changed("paint");
    } else {
      box.classList.add("dragging");
      app.view.pan(at.x - press.lastX, at.y - press.lastY);
      app.changed("view");
    }
    [press.lastX, press.lastY] = [at.x, at.y];
  });

  const end = (event) => {
    if (!touches.delete(event.pointerId) || !press) return;
    box.classList.remove("dragging");
    if (app.box) {
      const { view } = app, scale = (view.x1 - view.x0) / view.width, from = view.x0;
      if (app.box.to - app.box.from > CLICK) view.show(from + app.box.from * scale, from + app.box.to * scale);
      app.box = null;
      app.changed("view");
    } else if (!press.moved && !press.cursor && event.type === "pointerup") app.click(inPlot(event));
    if (touches.size === 0) press = null;
  };
  box.addEventListener("pointerup", end);
  box.addEventListener("pointercancel", end);
  box.addEventListener("pointerleave", () => app.leave());
  box.addEventListener("dblclick", () => { app.view.showAll(); app.changed("view"); });
  box.addEventListener("keydown", (event) => { if (chartKey(app, event)) event.preventDefault(); });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input[type=search], select");
    if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && pageKey(app, event)) event.preventDefault();
  });
  overviewDrag(app);
}

function distance(touches) {
  const [one, two] = [...touches.values()];
  return Math.hypot(one.x - two.x, one.y - two.y);
}

/** Moves the view by dragging in the overview of the whole run. */
function overviewDrag(app) {
  const canvas = $("overview");
  let offset = null;
  const place = (event) => (event.clientX - canvas.getBoundingClientRect().left - LEFT) / app.chart.plotWidth * app.view.length;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    const at = place(event), { view } = app, span = view.x1 - view.x0;
    offset = at >= view.x0 && at <= view.x1 ? at - view.x0 : span / 2;
    view.show(at - offset, at - offset + span);
    app.changed("view");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (offset === null) return;
    const from = place(event) - offset;
    app.view.show(from, from + app.view.x1 - app.view.x0);
    app.changed("view");
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { offset = null; });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { view } = app, middle = view.x(place(event));
    view.zoom(Math.exp(event.deltaY * 0.0022), 1, middle, 0);
    app.changed("view");
  }, { passive: false });
}

const KEYS = [
  ["Wheel|Pinch|+ −", "zoom in time"], ["Shift + wheel|Shift + ↑ ↓", "zoom in bytes"], ["Drag|Arrow keys", "pan"],
  ["Shift + drag", "zoom to a range"], ["Click", "select a block and set the cursor"],
  ["Click or drag below the chart", "move the cursor"], [",|.", "move the cursor one event back, forward"], ["0|Double click", "show all"],
  ["F", "fit the bytes to the visible range"], ["P", "move the cursor to the peak"], ["O", "move the cursor to the next failed request"],
  ["B|A|S", "blocks, areas, segments"], ["E|T", "events, time"], ["/", "search"], ["Esc", "clear the search and the selection"], ["?", "show this list"],
  ["Drop a page of orlop report", "adds its devices to the list"],
];

function chartKey(app, { key, shiftKey }) {
  const { view } = app, x = app.chart.plotWidth, y = app.chart.plotHeight;
  const cursor = app.chart.momentX(app.cursor), middle = cursor >= 0 && cursor <= x ? cursor : x / 2;
  const zoom = (fx, fy = 1) => view.zoom(fx, fy, middle, y / 2);
  const steps = {
    ArrowLeft: () => view.pan(x / 8, 0), ArrowRight: () => view.pan(-x / 8, 0),
    ArrowUp: () => shiftKey ? zoom(1, 0.7) : view.pan(0, y / 8),
    ArrowDown: () => shiftKey ? zoom(1, 1 / 0.7) : view.pan(0, -y / 8),
    PageUp: () => view.pan(x * 0.9, 0), PageDown: () => view.pan(-x * 0.9, 0),
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
  };
  if (!steps[key]) return false;
  steps[key]();
  app.changed("view");
  return true;
}

function pageKey(app, { key }) {
  const steps = {
    ",": () => app.setCursor(app.cursor - 1, true), ".": () => app.setCursor(app.cursor + 1, true),
    "0": () => { app.view.showAll(); app.changed("view"); },
    f: () => { app.view.fitBytes(); app.changed("view"); },
    p: () => app.setCursor(app.device.peak, true), o: () => app.nextFailure(),
    b: () => app.setMode("blocks"), a: () => app.setMode("areas"),
    s: () => { if (app.device.meta.segments) app.setMode("segments"); },
    e: () => app.setAxis("event"), t: () => app.setAxis("time"),
    "/": () => $("search").focus(), "?": () => app.showTab("help"),
    Escape: () => { app.setSearch(""); app.pin(-1); },
  };
  const step = steps[key.length === 1 ? key.toLowerCase() : key];
  step?.();
  return Boolean(step);
}

