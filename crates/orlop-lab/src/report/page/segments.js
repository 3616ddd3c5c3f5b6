// The segments over time, stacked in order of reservation, as blocks are in the other charts. Private pools have colours
// of their own.

class SegmentLayers {
  constructor(device) {
    const { extents, meta, events } = device, end = events + 1;
    this.meta = meta;
    this.of = Uint32Array.from(extents.born.keys()).sort((a, b) => extents.born[a] - extents.born[b] || a - b);
    const column = (name, Type) => Type.from(this.of, (extent) => Math.min(extents[name][extent], Type === Float64Array ? Infinity : end));
    this.born = column("born", Uint32Array);
    this.freed = column("lost", Uint32Array);
    this.bytes = column("bytes", Float64Array);
    this.lastFreed = new Uint32Array(Math.ceil(this.of.length / CHUNK));
    this.freed.forEach((moment, layer) => {
      const chunk = Math.floor(layer / CHUNK);
      this.lastFreed[chunk] = Math.max(this.lastFreed[chunk], moment);
    });
    this.extents = extents;
    const names = Array.from(this.of, (extent) => this.nameOf(extent));
    this.names = [...new Set(names)].sort();
    this.group = Uint32Array.from(names, (name) => this.names.indexOf(name));
  }

  nameOf(extent) {
    const { pool, class: kind, stream } = this.extents, words = CLASSES[kind[extent]] + (kind[extent] ? " segments" : "s");
    const own = pool[extent] ? `private pool ${this.meta.pools[pool[extent]]}: ` : "";
    return own + words + (stream[extent] ? `, stream ${this.meta.streams[stream[extent]]}` : "");
  }

  /** The number of segments reserved up to a moment. */
  bornBy(moment) {
    let low = 0, high = this.born.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.born[middle] <= moment) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** The segment at this height of the stack at a moment; -1 above it. */
  at(moment, height) {
    let sum = 0;
    for (let layer = 0, until = this.bornBy(moment); layer < until && height >= 0; layer++) {
      if (this.freed[layer] <= moment) continue;
      sum += this.bytes[layer];
      if (height < sum) return layer;
    }
    return -1;
  }

  /** The reserved bytes of each group at a moment. */
  sumsAt(moment) {
    const sums = new Float64Array(this.names.length);
    for (let layer = 0, until = this.bornBy(moment); layer < until; layer++) {
      if (this.freed[layer] > moment) sums[this.group[layer]] += this.bytes[layer];
    }
    return sums;
  }

  colours() { return Uint32Array.from(this.group, (group, layer) => groupColour(group, layer & 3)); }
}

/** The groups of segments with their reserved bytes at the cursor. */
function showSegmentLegend(app) {
  const { segments, cursor } = app, sums = segments.sumsAt(cursor);
  $("legend-title").textContent = "Segments";
  $("legend-when").textContent = "reserved at the cursor";
  const items = segments.names.map((name, group) => el("li", {}, el("button", { title: name, disabled: true },
    el("i", { style: `background:${css(groupColour(group, 1))}` }), ended("what", name),
    el("span", { className: "size", textContent: sums[group] ? bytes(sums[group]) : "–" }))));
  $("legend").replaceChildren(...items);
}

/** What is shown of the segment under the pointer. */
function segmentLines(app, layer) {
  const { segments, device, report: { stacks } } = app, extent = segments.of[layer], { extents } = device;
  return [el("b", { textContent: bytes(segments.bytes[layer]) }), el("p", { textContent: segments.names[segments.group[layer]] }),
    el("p", { textContent: stacks.name(extents.site[extent]) || NO_SITE }),
    el("p", { className: "soft", textContent: device.addressText(extents.address[extent]) })];
}
