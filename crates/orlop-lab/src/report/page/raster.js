// Draws the stack of blocks directly into pixels.
//
// Each column of pixels shows one moment and has a current height. Blocks are added in order of allocation: each covers a
// range of columns and is put on top of them. A block that moves down when one below it is freed needs no extra work, so
// the cost of a frame is that of its pixels and visible blocks. Blocks of less than half a pixel that cover many columns
// are collected by range and added to the heights together: a hundred thousand small weights are a few strips.
//
// Pixels first store their owner (block + 1, or 0 for none), then colours, so that a search only needs a repaint.

/** Small blocks that cover more columns than this are collected. */
const SHORT = 8;

class Raster {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.width = this.height = 0;
  }

  resize(width, height) {
    if (width === this.width && height === this.height) return;
    [this.width, this.height] = [width, height];
    this.canvas.width = width;
    this.canvas.height = height;
    this.image = this.context.createImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.owners = new Uint32Array(width * height);
    this.base = new Float64Array(width);
    this.pending = Array.from({ length: 17 }, () => ({ sum: 0, from: width, to: 0, block: 0, steps: new Float64Array(width + 1) }));
  }

  start(view) {
    this.owners.fill(0);
    this.scale = this.height / (view.y1 - view.y0);
    this.base.fill(-view.y0 * this.scale);
  }

  /** Draws every block of the view on top of those allocated before it. */
  blocks(device, view) {
    const { width } = this, { born, freed, bytes, lastFreed } = device;
    view.columns(width);
    this.start(view);
    const { scale } = this, { first, last, table: columns } = view, until = device.bornBy(last);
    for (let chunk = 0; chunk * CHUNK < until; chunk++) {
      if (lastFreed[chunk] <= first) continue;
      const end = Math.min(until, (chunk + 1) * CHUNK);
      for (let i = chunk * CHUNK; i < end; i++) {
        if (freed[i] <= first) continue;
        const from = born[i] <= first ? 0 : columns[born[i] - first];
        const to = freed[i] > last ? width : columns[freed[i] - first];
        if (from >= to) continue;
        const tall = bytes[i] * scale;
        if (tall < 0.5 && to - from > SHORT) this.collect(i + 1, from, to, tall);
        else this.land(i + 1, from, to, tall);
      }
    }
    for (const strip of this.pending) if (strip.sum > 0) this.flush(strip);
  }

  /** Puts a block on top of its columns. */
  land(owner, from, to, tall) {
    const { base, owners, height } = this;
    for (let c = from; c < to; c++) {
      const bottom = base[c], top = bottom + tall;
      base[c] = top;
      if (top <= 0 || bottom >= height) continue;
      const start = c * height + (bottom > 0 ? (bottom + 0.5) | 0 : 0);
      const end = c * height + (top < height ? (top + 0.5) | 0 : height);
      if (end - start > 40) owners.fill(owner, start, end);
      else for (let at = start; at < end; at++) owners[at] = owner;
    }
  }

  collect(owner, from, to, tall) {
    const strip = this.pending[31 - Math.clz32(to - from)];
    strip.steps[from] += tall;
    strip.steps[to] -= tall;
    strip.sum += tall;
    if (from < strip.from) strip.from = from;
    if (to > strip.to) strip.to = to;
    strip.block = owner;
    if (strip.sum >= 0.25) this.flush(strip);
  }

  flush(strip) {
    const { steps } = strip;
    let tall = 0;
    for (let c = strip.from; c < strip.to; c++) {
      tall += steps[c];
      steps[c] = 0;
      if (tall > 0) this.land(strip.block, c, c + 1, tall);
    }
    steps[strip.to] = 0;
    [strip.sum, strip.from, strip.to] = [0, this.width, 0];
  }

  /** Draws the sums of the groups, stacked. */
  areas(device, view, groups) {
    const { width } = this, { born, freed, bytes, lastFreed } = device;
    view.columns(width);
    this.start(view);
    const { first, last, table } = view, until = device.bornBy(last), row = width + 1;
    const steps = new Float64Array(groups.areas * row);
    for (let chunk = 0; chunk * CHUNK < until; chunk++) {
      if (lastFreed[chunk] <= first) continue;
      const end = Math.min(until, (chunk + 1) * CHUNK);
      for (let i = chunk * CHUNK; i < end; i++) {
        if (freed[i] <= first) continue;
        const from = born[i] <= first ? 0 : table[born[i] - first];
        const to = freed[i] > last ? width : table[freed[i] - first];
        if (from >= to) continue;
        const area = groups.areaOf(groups.of[i]) * row;
        steps[area + from] += bytes[i];
        steps[area + to] -= bytes[i];
      }
    }
    for (let area = 0; area < groups.areas; area++) {
      let sum = 0;
      for (let c = 0; c < width; c++) {
        sum += steps[area * row + c];
        if (sum > 0.5) this.land(area + 1, c, c + 1, sum * this.scale);
      }
    }
  }

  /** Converts owners to colours, with an outline around large blocks; `chosen` owners are highlighted. */
  paint(colours, chosen) {
    const { width, height, owners, pixels } = this, dark = darkness.matches;
    const originals = chosen.map(([owner, pixel]) => [owner, colours[owner - 1], pixel]);
    for (const [owner, , pixel] of originals) colours[owner - 1] = pixel;
    // By tiles, because owners are stored by column and pixels by row.
    for (let left = 0; left < width; left += 32) {
      const right = Math.min(width, left + 32);
      for (let y = 0; y < height; y++) {
        let to = (height - 1 - y) * width + left;
        for (let c = left; c < right; c++, to++) {
          const at = c * height + y, owner = owners[at];
          if (owner === 0) { pixels[to] = 0; continue; }
          let pixel = colours[owner - 1];
          const floor = y > 0 && owners[at - 1] !== owner && owners[at + 1] === owner && owners[at + 2] === owner;
          const wall = c > 0 && owners[at - height] !== owner && owners[at - 1] === owner && owners[at + 1] === owner
            && owners[at + height] === owner && owners[at + 2 * height] === owner && owners[at + 3 * height] === owner;
          if (floor || wall) {
            pixel = dark ? pixel - (pixel >>> 2 & 0x3f3f3f) : pixel + ((0xffffff & ~pixel) >>> 1 & 0x7f7f7f);
          }
          pixels[to] = pixel;
        }
      }
    }
    for (const [owner, pixel] of originals) colours[owner - 1] = pixel;
    this.context.putImageData(this.image, 0, 0);
  }
}

