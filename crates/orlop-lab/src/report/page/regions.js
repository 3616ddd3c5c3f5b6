// The segments at the moment of the cursor: blocks, and the holes between them.
//
// Segments are laid out in rows, like words in a text, all at one scale, so that nothing needs to be scrolled. The scale
// is that of the moment with the most reserved bytes, so that it does not change while the cursor moves. A segment that
// does not fit into the rest of its row continues in the next.

const GAP = 3, ROW_GAP = 4, LEAST = 3;

class RegionMap {
  constructor(app) {
    this.app = app;
    this.box = $("map");
    this.canvas = $("map-canvas");
    this.context = this.canvas.getContext("2d");
    this.parts = [];
    this.order = "address";
    this.box.addEventListener("pointermove", (event) => this.hover(event));
    this.box.addEventListener("pointerleave", () => { this.lit = null; app.hideTip(); });
    this.box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) { app.setCursor(app.cursor + step, true); event.preventDefault(); }
    });
    this.box.addEventListener("click", (event) => {
      const part = this.partAt(event);
      if (part?.piece && part.piece.block >= 0) app.pin(part.piece.block);
    });
  }

  forget() { this.scaleKey = ""; }

  /** Sets rows and scale so that the moment with the most reserved bytes fits. */
  fit(width, height) {
    const key = [width, height, this.app.device.meta.device].join();
    if (key === this.scaleKey) return;
    this.scaleKey = key;
    const { device } = this.app, sizes = device.segmentsAt(device.peakReserved).map((segment) => segment.bytes);
    const total = sizes.reduce((sum, size) => sum + size, 0) || 1;
    for (this.row = 24; this.row > 7; this.row -= 1) {
      this.rows = Math.max(1, Math.floor((height + ROW_GAP) / (this.row + ROW_GAP)));
      if (this.rows >= 4 || this.row < 12) break;
    }
    const room = this.rows * width, wide = (scale) =>
      sizes.reduce((sum, size) => sum + Math.max(LEAST, size * scale) + GAP, 0) + this.rows * 10;
    let low = 0, high = room / total;
    for (let i = 0; i < 30; i++) {
      const middle = (low + high) / 2;
      if (wide(middle) <= room) low = middle; else high = middle;
    }
    this.scale = low || 1e-9;
  }

  draw() {
    const { app, context } = this, { device } = app;
    const width = this.box.clientWidth, height = this.box.clientHeight;
    if (width < 20 || height < 10) return;
    sized(this.canvas, width, height, context);
    context.clearRect(0, 0, width, height);
    this.parts = [];
    this.map = device.mapAt(app.cursor);
    this.fit(width, height);
    const by = { address: (a, b) => a.address - b.address, bytes: (a, b) => b.bytes - a.bytes, free: (a, b) => b.free - a.free };
    const segments = this.map.segments.sort(by[this.order]);
    this.hatch ??= hatched(context);
    let x = 0, row = 0, left = segments.length;
    for (const segment of segments) {
      const wide = Math.max(LEAST, segment.bytes * this.scale);
      if (width - x < Math.min(wide, 12)) { x = 0; row++; }
      if (row >= this.rows) break;
      [x, row] = this.drawSegment(segment, wide, x, row, width);
      left--;
    }
    if (left > 0) app.mapNote = `${plural(left, "segment")} more do not fit here`;
    else app.mapNote = device.meta.segments ? "" : "The source has no segments, so there are no holes to show.";
    this.outline();
  }

  /** Draws a segment over the rows that it needs. Returns the start of the next. */
  drawSegment(segment, wide, x, row, width) {
    const { context } = this, tall = this.row, scale = wide / segment.bytes;
    let done = 0;
    while (done < wide - 0.01 && row < this.rows) {
      const part = Math.min(wide - done, width - x), y = row * (tall + ROW_GAP);
      context.fillStyle = styled("hole");
      context.fillRect(x, y, part, tall);
      this.drawPieces(segment, scale, done, part, x, y, tall);
      context.strokeStyle = styled("hole-line");
      context.lineWidth = 1;
      context.strokeRect(Math.round(x) + 0.5, y + 0.5, Math.max(1, Math.round(part) - 1), tall - 1);
      this.parts.push({ segment, x, y, width: part, from: done / scale, scale });
      done += part;
      x += part;
      if (done < wide - 0.01) { x = 0; row++; }
    }
    return [x + GAP, row];
  }

  drawPieces(segment, scale, done, part, x, y, tall) {
    const { context, app } = this, { pieces, address } = segment;
    let at = firstPiece(pieces, address + done / scale), drawn = -1;
    for (; at < pieces.length; at++) {
      const piece = pieces[at], start = (piece.address - address) * scale - done;
      if (start >= part) break;
      if (piece.block < 0) continue;
      const from = Math.max(0, start), to = Math.min(part, start + piece.bytes * scale);
      // Skips pieces within a pixel that is drawn already.
      if (to - from < 0.5 && Math.floor(to) === drawn) continue;
      drawn = Math.floor(to);
      context.fillStyle = css(app.blockColours[piece.block]);
      const wide = Math.max(to - from, 0.7);
      context.fillRect(x + from, y, wide, tall);
      if (piece.pending) { context.fillStyle = this.hatch; context.fillRect(x + from, y, wide, tall); }
      if (wide > 5) { context.fillStyle = styled("panel"); context.fillRect(x + to - 0.6, y, 0.6, tall); }
    }
  }

  /** Outlines the selected block and the piece under the pointer. */
  outline() {
    const { context, app } = this;
    const around = (address, bytes, colour) => {
      for (const part of this.parts) {
        const { segment } = part, from = Math.max(address - segment.address, part.from);
        const to = Math.min(address + bytes - segment.address, part.from + part.width / part.scale);
        if (to <= from) continue;
        context.strokeStyle = colour;
        context.lineWidth = 2;
        const wide = Math.max(3, (to - from) * part.scale);
        context.strokeRect(part.x + (from - part.from) * part.scale, part.y + 1, wide, this.row - 2);
      }
    };
    const { device, pinned, cursor } = app;
    if (pinned >= 0 && device.born[pinned] <= cursor && device.done[pinned] > cursor) {
      around(device.address[pinned], device.bytes[pinned] + device.rest[pinned], styled("accent"));
    }
  }

  /** Finds the segment and the piece under the pointer. */
  partAt(event) {
    const frame = this.box.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
    const part = this.parts.find((part) =>
      y >= part.y - ROW_GAP / 2 && y < part.y + this.row + ROW_GAP / 2 && x >= part.x - 1 && x < part.x + part.width + 1);
    if (!part) return null;
    const at = part.segment.address + part.from + Math.max(0, Math.min(part.width - 0.01, x - part.x)) / part.scale;
    return { ...part, piece: part.segment.pieces[firstPiece(part.segment.pieces, at)] };
  }

  hover(event) {
    const part = this.partAt(event), { app } = this, { device, report: { stacks } } = app;
    if (!part) return app.hideTip();
    const { segment, piece } = part, lines = [];
    if (piece?.block >= 0) lines.push(...app.blockLines(piece.block, piece.pending ? "freed, a stream may still use it" : ""));
    else if (piece) lines.push(el("b", { textContent: "hole of " + bytes(piece.bytes) }), el("p", { textContent: device.addressText(piece.address) }));
    const pool = segment.pool ? `, pool ${device.meta.pools[segment.pool]}` : "";
    const stream = segment.stream ? `, stream ${device.meta.streams[segment.stream]}` : "";
    lines.push(el("p", { className: "soft", textContent:
      `in a ${CLASSES[segment.kind]}${segment.kind ? " segment" : ""} of ${bytes(segment.bytes)}${pool}${stream}: `
      + `${bytes(segment.free)} free, largest hole ${bytes(segment.largest)}` }));
    app.showTip(event, lines, stacks);
  }
}

/** The index of the piece that contains an address. */
function firstPiece(pieces, address) {
  let low = 0, high = pieces.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (pieces[middle].address + pieces[middle].bytes <= address) low = middle + 1; else high = middle;
  }
  return low;
}

/** Stripes for blocks that are freed, but still in use by a stream. */
function hatched(context) {
  const tile = el("canvas", { width: 6, height: 6 }), pen = tile.getContext("2d");
  pen.strokeStyle = "rgb(255 255 255 / .75)";
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const x of [-6, 0, 6]) { pen.moveTo(x, 6); pen.lineTo(x + 6, 0); }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

