// The visible part of the history: converts moments, time and bytes to pixels and back.

class View {
  constructor(device) {
    this.device = device;
    this.axis = "event";
    this.width = this.height = 1;
    this.sample = new Uint32Array(0);
    this.table = new Uint16Array(0);
    this.showAll();
  }

  /** The end of the horizontal axis, in moments or nanoseconds. */
  get length() {
    const { device } = this;
    return this.axis === "event" ? device.events + 1 : Math.max(device.timeOf(device.events) * 1.01, 1);
  }

  /** The top of the vertical axis. Reserved bytes far above the live bytes are not included. */
  get ceiling() {
    const { live, reserved, peak, peakReserved } = this.device;
    const top = reserved[peakReserved] <= 3 * live[peak] ? Math.max(live[peak], reserved[peakReserved]) : live[peak] * 1.2;
    return Math.max(top * 1.05, 512);
  }

  showAll() { [this.x0, this.x1, this.y0, this.y1] = [0, this.length, 0, this.ceiling]; }

  setAxis(axis) {
    if (axis === this.axis) return;
    const from = this.momentOf(this.x0), to = this.momentOf(this.x1);
    const all = this.x0 <= 0 && this.x1 >= this.length;
    this.axis = axis;
    [this.x0, this.x1] = all ? [0, this.length] : [this.place(from), this.place(to + 1)];
    this.keepInside();
  }

  /** The start of a moment on the horizontal axis. */
  place(moment) { return this.axis === "event" ? moment : this.device.timeOf(moment); }

  /** The moment at a position of the horizontal axis. */
  momentOf(x) {
    if (this.axis === "event") return Math.max(0, Math.min(this.device.events, Math.floor(x)));
    return this.device.momentAt(x);
  }

  x(place) { return (place - this.x0) / (this.x1 - this.x0) * this.width; }
  y(height) { return this.height - (height - this.y0) / (this.y1 - this.y0) * this.height; }
  heightAt(y) { return this.y0 + (this.height - y) / this.height * (this.y1 - this.y0); }

  /** Changes the scales around a pixel; a factor below 1 zooms in. */
  zoom(factorX, factorY, px, py) {
    const x = this.x0 + px / this.width * (this.x1 - this.x0), y = this.heightAt(py);
    // At least a few events, and at least a few bytes.
    const minimum = this.axis === "event" ? 8 : Math.max(this.length / 1e7, 100);
    const fx = Math.max(factorX, minimum / (this.x1 - this.x0)), fy = Math.max(factorY, 4096 / (this.y1 - this.y0));
    this.x0 = x - (x - this.x0) * fx; this.x1 = x + (this.x1 - x) * fx;
    this.y0 = y - (y - this.y0) * fy; this.y1 = y + (this.y1 - y) * fy;
    this.keepInside();
  }

  /** Moves the view by pixels. */
  pan(dx, dy) {
    const x = dx / this.width * (this.x1 - this.x0), y = dy / this.height * (this.y1 - this.y0);
    this.x0 -= x; this.x1 -= x; this.y0 += y; this.y1 += y;
    this.keepInside();
  }

  show(x0, x1) { [this.x0, this.x1] = [x0, x1]; this.keepInside(); }

  keepInside() {
    const fit = (from, to, max, min) => {
      const span = Math.min(Math.max(to - from, min), max);
      const start = Math.max(0, Math.min(from, max - span));
      return [start, start + span];
    };
    [this.x0, this.x1] = fit(this.x0, this.x1, this.length, Math.min(4, this.length));
    [this.y0, this.y1] = fit(this.y0, this.y1, Math.max(this.ceiling, this.y1 - this.y0), 256);
  }

  /** Fits the bytes to the live bytes in view. */
  fitBytes() {
    this.columns(Math.ceil(this.width));
    let low = Infinity, high = 0;
    const { device } = this, last = this.momentOf(this.x1), first = this.momentOf(this.x0);
    for (let m = first; m <= last; m++) {
      low = Math.min(low, device.live[m]);
      high = Math.max(high, device.live[m]);
    }
    const margin = Math.max((high - low) * 0.08, high * 0.002, 512);
    [this.y0, this.y1] = [Math.max(0, low - (high - low) * 0.35 - margin), high + margin];
    this.keepInside();
  }

  /**
   * For each of `width` columns the moment with the most live bytes of its range. `table` has for each moment the first
   * column that shows it or a later one. Columns start at multiples of their width, so that panning does not flicker.
   */
  columns(width) {
    const { device } = this;
    if (this.sample.length !== width) this.sample = new Uint32Array(width);
    const { sample } = this, step = (this.x1 - this.x0) / width, start = Math.floor(this.x0 / step) * step;
    let next = this.momentOf(start);
    this.first = next;
    for (let c = 0; c < width; c++) {
      const from = next;
      next = this.momentOf(start + (c + 1) * step);
      sample[c] = next > from ? device.fullest(from, next - 1) : from;
    }
    this.last = sample[width - 1];
    const moments = this.last - this.first + 2;
    if (this.table.length < moments) this.table = new Uint16Array(Math.max(moments, this.table.length * 2));
    for (let c = 0, from = 0; c < width; c++) {
      const to = sample[c] - this.first + 1;
      if (to > from) { this.table.fill(c, from, to); from = to; }
    }
    return sample;
  }
}

