// The chart: the raster, with axes, lines, marks and the cursor on top.

/** Margins around the plot, in CSS pixels: for bytes, for marks and annotations, for events or time. */
const LEFT = 74, RIGHT = 12, TOP = 20, BOTTOM = 24, LANE = 17, LANES = 3;
/** With more pixels than this, the raster is scaled up. */
const MOST_PIXELS = 3.2e6;

class Chart {
  constructor(app) {
    this.app = app;
    this.box = $("chart");
    this.raster = new Raster($("raster"));
    this.overlay = $("overlay");
    this.over = this.overlay.getContext("2d");
    this.overview = $("overview");
    this.overviewContext = this.overview.getContext("2d");
    this.wall = document.createElement("canvas");
  }

  /** Resizes the canvases to their boxes. */
  measure() {
    const { clientWidth: width, clientHeight: height } = this.box, { app } = this;
    this.top = TOP + LANE * app.notes.lanes;
    this.plotWidth = Math.max(50, width - LEFT - RIGHT);
    this.plotHeight = Math.max(50, height - this.top - BOTTOM);
    let ratio = Math.min(devicePixelRatio || 1, 2);
    ratio = Math.min(ratio, Math.sqrt(MOST_PIXELS / (this.plotWidth * this.plotHeight)));
    this.raster.resize(Math.round(this.plotWidth * ratio), Math.round(this.plotHeight * ratio));
    Object.assign(this.raster.canvas.style, { left: LEFT + "px", top: this.top + "px", width: this.plotWidth + "px", height: this.plotHeight + "px" });
    this.ratio = ratio;
    sized(this.overlay, width, height, this.over);
    [app.view.width, app.view.height] = [this.plotWidth, this.plotHeight];
    this.wallKey = "";
  }

  /** Redraws everything after a change of the view. */
  draw() {
    const { app, raster } = this;
    if (app.mode === "blocks") raster.blocks(app.device, app.view);
    else if (app.mode === "segments") raster.blocks(app.segments, app.view);
    else raster.areas(app.device, app.view, app.groups);
    this.paint();
    this.drawOverview();
  }

  /** Redraws colours and lines after a change of the selection. */
  paint() {
    const { app, raster } = this, chosen = [];
    if (app.mode === "blocks") {
      const light = darkness.matches ? oklch(0.9, 0.05, 60) : oklch(0.45, 0.12, 40);
      if (app.hovered >= 0) chosen.push([app.hovered + 1, darkness.matches ? oklch(0.85, 0.04, 80) : oklch(0.5, 0.05, 60)]);
      if (app.pinned >= 0) chosen.push([app.pinned + 1, light]);
    }
    const colours = { blocks: app.blockColours, areas: app.areaColours, segments: app.segments.colours() };
    raster.paint(colours[app.mode], chosen);
    this.drawOver();
  }

  /** The column of the raster under a pixel of the plot. */
  columnAt(px) { return Math.max(0, Math.min(this.raster.width - 1, Math.floor(px * this.ratio))); }
  /** The moment that is drawn under a pixel of the plot. */
  momentAt(px) { return this.app.view.sample[this.columnAt(px)]; }

  /** The position of a moment in pixels of the plot: the column that shows it, if there is one. */
  momentX(moment) {
    const { view } = this.app;
    if (moment >= view.first && moment <= view.last && this.raster.width) {
      return (view.table[moment - view.first] + 0.5) / this.ratio;
    }
    return view.x(view.place(moment + 0.5));
  }

  drawOver() {
    const { over, plotWidth: width, plotHeight: height, top, app } = this;
    over.clearRect(0, 0, this.box.clientWidth, this.box.clientHeight);
    over.save();
    over.translate(LEFT, top);
    over.font = "11px " + getComputedStyle(document.body).fontFamily;
    this.drawAxes(width, height);
    over.save();
    over.beginPath();
    over.rect(0, -top, width, height + top + 1);
    over.clip();
    this.labels = [];
    this.drawNotes(height);
    this.drawMarks(width, height);
    over.beginPath();
    over.rect(0, 0, width, height + 1);
    over.clip();
    this.drawLines(width, height);
    over.restore();
    // Labels come last, by importance: those without room are left out.
    for (const label of this.labels) this.drawLabel(label);
    over.restore();
  }

  drawAxes(width, height) {
    const { over, app: { view } } = this, soft = styled("soft"), ink = styled("ink");
    over.textBaseline = "middle";
    over.textAlign = "right";
    const marks = ticks(view.y0, view.y1, height / 44, 2);
    for (const at of marks.list) {
      const y = Math.round(view.y(at)) + 0.5;
      over.fillStyle = ink;
      over.globalAlpha = 0.09;
      over.fillRect(0, y - 0.5, width, 1);
      over.globalAlpha = 1;
      over.fillStyle = soft;
      over.fillText(tickBytes(at, marks.step), -7, Math.min(Math.max(y, 6), height - 5));
    }
    over.fillStyle = styled("line");
    over.fillRect(0, height, width, 1);
    over.fillRect(-1, 0, 1, height + 1);
    over.textBaseline = "top";
    over.textAlign = "center";
    over.fillStyle = soft;
    const event = view.axis === "event", { list, step } = ticks(view.x0, view.x1, width / 110, 10);
    for (const at of list) {
      const x = view.x(at), text = event ? count(at) : tickTime(at, step), half = over.measureText(text).width / 2;
      over.fillRect(Math.round(x), height + 1, 1, 4);
      // The end of the axis is for its name.
      if (x - half >= -20 && x + half < width - (event ? 48 : 40)) over.fillText(text, x, height + 7);
    }
    over.textAlign = "right";
    over.fillStyle = styled("faint");
    over.fillText(event ? "events" : "time", width, height + 7);
  }

  /** Draws the program's annotations as bands above the plot, with lines at their start and end. */
  drawNotes(height) {
    const { over, app: { notes } } = this, drawn = [];
    for (const band of notes.bands) {
      if (band.lane >= LANES) continue;
      const place = this.bandX(band), from = Math.max(-1, place[0]);
      const to = Math.min(this.plotWidth + 1, Math.max(place[1], place[0] + 2));
      // Several bands within one pixel are drawn once.
      if (to < 0 || from > this.plotWidth || to < drawn[band.lane] + 1) continue;
      drawn[band.lane] = to;
      const colour = css(groupColour(band.hue)), y = -this.top + 2 + band.lane * LANE;
      over.fillStyle = colour;
      over.globalAlpha = 0.6;
      for (const x of place) over.fillRect(Math.round(x), y, 1, height - y);
      over.globalAlpha = 0.35;
      over.fillRect(from, y, to - from, LANE - 3);
      over.globalAlpha = 1;
      over.fillStyle = styled("ink");
      over.textAlign = "left";
      over.textBaseline = "middle";
      const text = shortened(over, band.text, to - from - 8);
      if (text) over.fillText(text, from + 4, y + LANE / 2 - 1);
    }
  }

  /** The start and end of a band, in pixels of the plot. */
  bandX(band) {
    const { view } = this.app;
    return view.axis === "event" ? [view.x(band.from), view.x(band.to)] : [view.x(band.start), view.x(band.end)];
  }

  /** Draws live bytes, reserved bytes and the memory of the device. */
  drawLines(width, height) {
    const { over, raster, app: { view, device } } = this;
    const line = (value, colour, dash, thick = 1.5) => {
      over.beginPath();
      let before = NaN;
      for (let c = 0; c < raster.width; c++) {
        const y = view.y(value(view.sample[c])), x = c / this.ratio;
        if (y !== before) {
          if (c > 0) over.lineTo(x, before);
          over[c ? "lineTo" : "moveTo"](x, y);
        }
        before = y;
      }
      over.lineTo(width, before);
      over.strokeStyle = colour;
      over.setLineDash(dash);
      over.lineWidth = thick;
      over.stroke();
      over.setLineDash([]);
      return before;
    };
    over.globalAlpha = 0.75;
    line((moment) => device.live[moment], styled("ink"), [], 1);
    over.globalAlpha = 1;
    if (device.meta.segments) {
      const y = line((moment) => device.reserved[moment], styled("accent"), []);
      if (y > 0 && y < height) this.label("reserved", width, y > 16 ? y - 8 : y + 9, styled("accent"));
    }
    if (device.meta.memory) {
      const y = line(() => device.meta.memory, styled("bad"), [5, 4]);
      if (y > 0 && y < height) this.label("device memory", 0, y > 16 ? y - 8 : y + 9, styled("bad"));
    }
  }

  drawMarks(width, height) {
    const { over, app } = this, { view, device } = app;
    const mark = (moment, text, colour, y) => {
      const x = this.momentX(moment);
      if (x < 0 || x > width) return;
      over.fillStyle = colour;
      over.fillRect(Math.round(x), -TOP + 15, 1, height + TOP - 15);
      this.label(text, x, y, colour);
    };
    mark(device.peak, "peak " + bytes(device.live[device.peak]), styled("ink"), -TOP / 2 + 1);
    // Requests often fail near the peak, so their labels are below that of the peak.
    for (const failure of device.meta.out_of_memory) mark(failure.moment, `out of memory: ${bytes(failure.bytes)}`, styled("bad"), 9);
    drawRefusals(this, over, width);
    for (const moment of device.meta.snapshots) mark(moment, "snapshot", styled("faint"), -TOP / 2 + 1);
    const x = Math.round(this.momentX(app.cursor));
    if (x >= 0 && x <= width) {
      over.fillStyle = styled("accent");
      over.fillRect(x - 1, 0, 2, height);
      over.beginPath();
      over.moveTo(x - 6, height + 7); over.lineTo(x + 6, height + 7); over.lineTo(x, height); over.fill();
    }
    if (app.box) {
      over.strokeStyle = over.fillStyle = styled("accent");
      over.globalAlpha = 0.15;
      over.fillRect(app.box.from, 0, app.box.to - app.box.from, height);
      over.globalAlpha = 1;
      over.strokeRect(app.box.from, 0, app.box.to - app.box.from, height);
    }
  }

  /** Adds a label at a position, or below it if it would cover another label. */
  label(text, x, y, colour) {
    const half = this.over.measureText(text).width / 2 + 5, middle = Math.max(half, Math.min(this.plotWidth - half, x));
    const covered = (at) => this.labels.some((label) => Math.abs(label.y - at) < 14 && Math.abs(label.middle - middle) < label.half + half);
    // There is one line above the plot. A label that repeats one at the same position is dropped.
    const same = this.labels.some((label) => label.text === text && Math.abs(label.middle - middle) < label.half + half);
    const place = y < 0 ? [y] : [y, y + 15, y + 30, y + 45];
    const free = place.find((at) => !covered(at));
    if (!same && free !== undefined) this.labels.push({ text, middle, y: free, half, colour });
  }

  /** Draws a label with a background, so that it can be read over the plot. */
  drawLabel({ text, middle, y, half, colour }) {
    const { over } = this;
    over.globalAlpha = 0.85;
    over.fillStyle = styled("panel");
    over.fillRect(middle - half + 2, y - 7, 2 * half - 4, 14);
    over.globalAlpha = 1;
    over.fillStyle = colour;
    over.textAlign = "center";
    over.textBaseline = "middle";
    over.fillText(text, middle, y);
  }

  /** Draws the overview of the whole history, with the visible part highlighted. */
  drawOverview() {
    const { app, overview, overviewContext: context } = this, { view } = app;
    const width = overview.clientWidth, height = overview.clientHeight, plot = this.plotWidth;
    sized(overview, width, height, context);
    const key = [width, height, view.axis, darkness.matches].join();
    if (key !== this.wallKey) {
      this.wallKey = key;
      this.drawWall(width, height, plot);
    }
    context.clearRect(0, 0, width, height);
    context.drawImage(this.wall, 0, 0, width, height);
    const from = LEFT + view.x0 / view.length * plot, to = LEFT + view.x1 / view.length * plot;
    context.fillStyle = styled("panel");
    context.globalAlpha = 0.65;
    context.fillRect(LEFT, 0, from - LEFT, height);
    context.fillRect(to, 0, LEFT + plot - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = styled("accent");
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.5, 1, Math.max(2, to - from - 1), height - 2);
  }

  drawWall(width, height, plot) {
    const { app: { device, view } } = this, context = this.wall.getContext("2d");
    sized(this.wall, width, height, context);
    context.clearRect(0, 0, width, height);
    const all = new View(device);
    all.axis = view.axis;
    all.showAll();
    const columns = Math.floor(plot), sample = all.columns(columns), top = device.live[device.peak] * 1.08 || 1;
    context.fillStyle = styled("faint");
    context.globalAlpha = 0.7;
    for (let c = 0; c < columns; c++) {
      const tall = device.live[sample[c]] / top * (height - 4);
      context.fillRect(LEFT + c, height - 2 - tall, 1, tall);
    }
    context.globalAlpha = 1;
    context.fillStyle = styled("bad");
    for (const failure of device.meta.out_of_memory) {
      context.fillRect(LEFT + all.place(failure.moment) / all.length * plot - 1, 0, 2, height);
    }
    context.fillStyle = styled("soft");
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.font = "11px " + getComputedStyle(document.body).fontFamily;
    context.fillText("whole run", LEFT - 7, height / 2);
  }
}

/** Sets the size of a canvas in CSS pixels, at the screen's resolution. */
function sized(canvas, width, height, context) {
  const ratio = Math.min(devicePixelRatio || 1, 2), wide = Math.round(width * ratio), tall = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== tall) {
    [canvas.width, canvas.height] = [wide, tall];
    Object.assign(canvas.style, { width: width + "px", height: height + "px" });
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
}

/** A text whose start is cut to fit a width in pixels; empty if there is no room. */
function shortened(context, text, width) {
  if (width < 14) return "";
  if (context.measureText(text).width <= width) return text;
  let keep = text.length;
  while (keep > 0 && context.measureText("…" + text.slice(-keep)).width > width) keep = keep > 20 ? Math.floor(keep * 0.8) : keep - 1;
  return keep > 1 ? "…" + text.slice(-keep) : "";
}

