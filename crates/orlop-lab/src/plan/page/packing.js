// A plan: its buffers, the groups of their names, the load over time, and the visible part.

class Packing {
  constructor(data) {
    Object.assign(this, data);
    this.count = data.size.length;
    this.first = this.count ? data.start.reduce((a, b) => Math.min(a, b)) : 0;
    this.last = this.count ? data.end.reduce((a, b) => Math.max(a, b)) : 1;
    this.sumLoad();
    this.findGroups();
  }

  nameOf(buffer) { return this.names[this.name[buffer]] || "#" + buffer; }

  /** The live bytes after each change, and the greatest of them. */
  sumLoad() {
    const changes = [];
    for (let i = 0; i < this.count; i++) {
      if (this.size[i]) changes.push([this.start[i], this.size[i]], [this.end[i], -this.size[i]]);
    }
    changes.sort((a, b) => a[0] - b[0]);
    this.load = [];
    this.fullest = { time: this.first, bytes: 0 };
    let live = 0;
    changes.forEach(([time, bytes], index) => {
      live += bytes;
      if (changes[index + 1]?.[0] === time) return;
      this.load.push([time, live]);
      if (live > this.fullest.bytes) this.fullest = { time, bytes: live };
    });
  }

  /** Names that differ in a number are one group; buffers without names are grouped by size. */
  findGroups() {
    const named = this.names.some((name) => name);
    const stem = (name) => (name.includes(" ") ? name : name.split("/").pop() || name).replace(/([._]?\d+)+$/, "") || name;
    const stems = this.names.map(stem), groups = new Map();
    const keys = Array.from({ length: this.count }, (_, i) =>
      named ? stems[this.name[i]] || "no name" : "up to " + bytes(2 ** Math.max(0, Math.ceil(Math.log2(Math.max(this.size[i], 1))))));
    keys.forEach((key, i) => {
      const group = groups.get(key) ?? groups.set(key, { name: key, buffers: 0, peak: 0, area: 0 }).get(key);
      group.buffers++;
      group.area += this.size[i] * (this.end[i] - this.start[i]);
      if (this.start[i] <= this.fullest.time && this.fullest.time < this.end[i]) group.peak += this.size[i];
    });
    this.groups = [...groups.values()].sort((a, b) => b.area - a.area);
    this.groups.forEach((group, rank) => { group.rank = rank; });
    this.group = keys.map((key) => groups.get(key).rank);
    this.named = named;
  }

  /** The buffer at a time and an offset, or -1. */
  at(time, offset) {
    for (let i = 0; i < this.count; i++) {
      if (this.start[i] <= time && time < this.end[i] && this.offset[i] <= offset && offset < this.offset[i] + this.size[i]) return i;
    }
    return -1;
  }

  /** Buffers that have bytes of this one at other times: the last one before it, and the first one after. */
  around(buffer) {
    let before = -1, after = -1;
    for (let i = 0; i < this.count; i++) {
      const shares = i !== buffer && this.offset[i] < this.offset[buffer] + this.size[buffer] && this.offset[buffer] < this.offset[i] + this.size[i];
      if (!shares) continue;
      if (this.end[i] <= this.start[buffer] && (before < 0 || this.end[i] > this.end[before])) before = i;
      if (this.start[i] >= this.end[buffer] && (after < 0 || this.start[i] < this.start[after])) after = i;
    }
    return { before, after };
  }
}

/** The visible part of a plan. Pixels are those of the plot, without its axes. */
class Window {
  constructor(packing) {
    this.packing = packing;
    this.width = this.height = 1;
    this.showAll();
  }

  get top() { return Math.max(this.packing.peak * 1.05, 1); }

  showAll() {
    [this.x0, this.x1] = [this.packing.first, Math.max(this.packing.last, this.packing.first + 1)];
    [this.y0, this.y1] = [0, this.top];
  }

  x(time) { return (time - this.x0) / (this.x1 - this.x0) * this.width; }
  y(offset) { return this.height - (offset - this.y0) / (this.y1 - this.y0) * this.height; }
  timeAt(x) { return this.x0 + x / this.width * (this.x1 - this.x0); }
  offsetAt(y) { return this.y0 + (this.height - y) / this.height * (this.y1 - this.y0); }

  /** Changes the scales around a pixel; a factor below 1 zooms in. */
  zoom(factorX, factorY, px, py) {
    const time = this.timeAt(px), offset = this.offsetAt(py);
    this.x0 = time - (time - this.x0) * factorX; this.x1 = time + (this.x1 - time) * factorX;
    this.y0 = offset - (offset - this.y0) * factorY; this.y1 = offset + (this.y1 - offset) * factorY;
    this.keepInside();
  }

  pan(dx, dy) {
    const x = dx / this.width * (this.x1 - this.x0), y = dy / this.height * (this.y1 - this.y0);
    this.x0 -= x; this.x1 -= x; this.y0 += y; this.y1 += y;
    this.keepInside();
  }

  centre(time) {
    const half = (this.x1 - this.x0) / 2;
    [this.x0, this.x1] = [time - half, time + half];
    this.keepInside();
  }

  keepInside() {
    const fit = (from, to, low, high, min) => {
      const span = Math.min(Math.max(to - from, Math.min(min, high - low)), high - low);
      const start = Math.max(low, Math.min(from, high - span));
      return [start, start + span];
    };
    const { first, last } = this.packing;
    [this.x0, this.x1] = fit(this.x0, this.x1, first, Math.max(last, first + 1), 2);
    [this.y0, this.y1] = fit(this.y0, this.y1, 0, this.top, 64);
  }
}
