// The drawing of a plan: boxes, axes, and the load below.

const LEFT = 78, BOTTOM = 24, TOP = 8, RIGHT = 14;

/** Sizes a canvas to its place and clears it; drawing is then in CSS pixels. */
function prepared(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    [canvas.style.width, canvas.style.height] = [width + "px", height + "px"];
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px " + getComputedStyle(document.body).fontFamily;
  return context;
}

/** The beginning of a text that has room, or nothing if that says too little. */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = Math.floor(text.length * width / context.measureText(text).width);
  while (length > 0 && context.measureText(text.slice(0, length) + "…").width > width) length--;
  return length > 3 ? text.slice(0, length) + "…" : "";
}

class Chart {
  constructor(app) { this.app = app; }

  draw() {
    const { packing, view } = this.app, box = $("chart").getBoundingClientRect();
    [view.width, view.height] = [Math.max(1, box.width - LEFT - RIGHT), Math.max(1, box.height - TOP - BOTTOM)];
    const context = prepared($("canvas"), box.width, box.height);
    this.axes(context, box);
    context.save();
    context.beginPath();
    context.rect(LEFT, TOP, view.width, view.height);
    context.clip();
    context.translate(LEFT, TOP);
    for (let i = 0; i < packing.count; i++) this.buffer(context, i);
    this.top(context);
    context.restore();
    this.overview();
  }

  /** The box of a buffer, with its name if there is room. */
  buffer(context, i) {
    const { packing, view, matches, chosen, kept, hovered } = this.app;
    const left = view.x(packing.start[i]), right = view.x(packing.end[i]);
    const low = view.y(packing.offset[i]), high = view.y(packing.offset[i] + packing.size[i]);
    if (right < 0 || left > view.width || low < 0 || high > view.height || low - high < 0.05) return;
    const rank = packing.group[i], muted = !matches(i) || (chosen >= 0 && chosen !== rank);
    const inset = right - left > 4 && low - high > 4 ? 0.5 : 0;
    const x = Math.max(left, -4) + inset, width = Math.max(Math.min(right, view.width + 4) - x - inset, 0.7);
    const y = Math.max(high, -4) + inset, height = Math.max(Math.min(low, view.height + 4) - y - inset, 0.7);
    context.fillStyle = css(muted ? mutedColour(i % 4) : groupColour(rank, i % 4));
    context.fillRect(x, y, width, height);
    if (i === kept || i === hovered) {
      context.strokeStyle = styled("ink");
      context.lineWidth = i === kept ? 2.5 : 1.5;
      context.strokeRect(x, y, width, height);
    }
    if (width < 46 || height < 13 || muted) return;
    const name = fitted(context, packing.nameOf(i), width - 9), size = bytes(packing.size[i]);
    const upper = Math.max(y, 0), room = Math.min(y + height, view.height) - upper;
    if (!name || room < 13) return;
    context.fillStyle = "#14171b";
    context.textBaseline = "middle";
    const both = room >= 30 && context.measureText(size).width <= width - 9;
    context.fillText(name, Math.max(x, 0) + 5, upper + (both ? 12 : Math.min(room / 2, 12)));
    if (!both) return;
    context.globalAlpha = 0.72;
    context.fillText(size, Math.max(x, 0) + 5, upper + 26);
    context.globalAlpha = 1;
  }

  /** The end of the highest buffer, with its height. */
  top(context) {
    const { packing, view } = this.app, y = Math.round(view.y(packing.peak)) + 0.5;
    context.strokeStyle = context.fillStyle = styled("ink");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(view.width, y);
    context.stroke();
    context.textAlign = "right";
    context.textBaseline = "bottom";
    context.fillText("plan: " + bytes(packing.peak), view.width, y - 3);
    context.textAlign = "left";
  }

  axes(context, box) {
    const { packing, view } = this.app;
    context.fillStyle = styled("soft");
    context.strokeStyle = styled("grid");
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const rows = ticks(view.y0, view.y1, view.height / 50, 2);
    for (const at of rows.list) {
      const y = Math.round(TOP + view.y(at)) + 0.5;
      context.beginPath();
      context.moveTo(LEFT, y);
      context.lineTo(LEFT + view.width, y);
      context.stroke();
      context.fillText(tickBytes(at, rows.step), LEFT - 8, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const at of ticks(view.x0, view.x1, view.width / 90, 10).list) {
      const x = Math.round(LEFT + view.x(at)) + 0.5;
      context.beginPath();
      context.moveTo(x, TOP + view.height);
      context.lineTo(x, TOP + view.height + 4);
      context.stroke();
      context.fillText(count(at), x, TOP + view.height + 7);
    }
    context.textAlign = "left";
    context.fillText(packing.unit, 8, box.height - BOTTOM + 7);
  }

  /** The load over all time, below the peak, with the visible part. */
  overview() {
    const { packing, view } = this.app, box = $("overview").getBoundingClientRect();
    const context = prepared($("overview"), box.width, box.height), width = view.width, height = box.height - 6;
    const span = Math.max(packing.last - packing.first, 1);
    const x = (time) => LEFT + (time - packing.first) / span * width;
    const y = (value) => 3 + height - value / Math.max(packing.peak, 1) * height;
    context.fillStyle = styled("grid");
    context.fillRect(LEFT, y(packing.peak), width, height);
    context.fillStyle = styled("faint");
    context.beginPath();
    context.moveTo(LEFT, y(0));
    let before = 0;
    for (const [time, value] of packing.load) {
      context.lineTo(x(time), y(before));
      context.lineTo(x(time), y(value));
      before = value;
    }
    context.lineTo(LEFT + width, y(before));
    context.lineTo(LEFT + width, y(0));
    context.fill();
    context.fillStyle = styled("soft");
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillText("live bytes", LEFT - 8, box.height / 2);
    const [from, to] = [x(view.x0), x(view.x1)];
    if (to - from < width - 1) {
      context.strokeStyle = styled("accent");
      context.lineWidth = 2;
      context.strokeRect(from, 2, Math.max(to - from, 3), box.height - 4);
    }
  }
}
