// Blocks by call site, category, kind, tag, stream or size: names, an order, and colours.

const GROUPINGS = {
  site: { title: "Call sites", one: "call site" },
  category: { title: "Categories", one: "category" },
  kind: { title: "Kinds", one: "kind" },
  text: { title: "Tags", one: "tag" },
  stream: { title: "Streams", one: "stream" },
  size: { title: "Sizes", one: "size" },
};
/** The number of groups with an area of their own. */
const OWN_AREA = 12;

class Groups {
  constructor(device, report, by) {
    this.by = by;
    const { stacks, meta } = report, keys = this.keys(device, stacks, meta);
    this.count(device, keys);
  }

  /** A key for each block, and the name of each key. */
  keys(device, stacks, meta) {
    switch (this.by) {
      case "category": return { of: device.category, name: (key) => meta.categories[key] };
      case "kind": return { of: device.kind, name: (key) => meta.kinds[key] };
      case "text": return { of: device.text, name: (key) => stacks.texts[key] || "no tag" };
      case "stream": return { of: device.stream, name: (key) => "stream " + device.meta.streams[key] };
      case "size": return {
        of: Uint8Array.from(device.bytes, (value) => Math.max(0, Math.ceil(Math.log2(Math.max(value, 1))))),
        name: (key) => "up to " + bytes(2 ** key),
      };
      // Several stacks can have the same name.
      default: return {
        of: device.site.map((site, block) => stacks.names[site] || (device.born[block] ? 0 : stacks.texts.length)),
        name: (key) => stacks.texts[key] || (key ? BEFORE : NO_SITE),
      };
    }
  }

  /** The groups by live bytes at the peak plus their mean over the run, then by total bytes. */
  count(device, { of, name }) {
    const indices = new Map(), groups = [];
    const indexOf = new Uint32Array(device.blocks);
    for (let i = 0; i < device.blocks; i++) {
      let index = indices.get(of[i]);
      if (index === undefined) {
        index = groups.length;
        indices.set(of[i], index);
        groups.push({ name: name(of[i]), blocks: 0, total: 0, peak: 0, mean: 0, index });
      }
      indexOf[i] = index;
      const group = groups[index], atPeak = device.born[i] <= device.peak && device.freed[i] > device.peak;
      group.blocks++;
      group.total += device.bytes[i];
      group.mean += device.bytes[i] * (device.freed[i] - device.born[i]) / (device.events + 1);
      if (atPeak) group.peak += device.bytes[i];
    }
    this.list = groups.slice().sort((a, b) => (b.peak + b.mean) - (a.peak + a.mean) || b.total - a.total);
    const rank = new Uint32Array(groups.length);
    this.list.forEach((group, place) => { rank[group.index] = place; group.rank = place; });
    this.of = indexOf.map((index) => rank[index]);
  }

  /** The number of areas: the largest groups, and one for the others. */
  get areas() { return Math.min(this.list.length, OWN_AREA + 1); }

  areaOf(rank) { return Math.min(rank, OWN_AREA); }

  areaName(area) {
    const last = area === OWN_AREA && this.list.length > OWN_AREA + 1;
    return last ? `the other ${count(this.list.length - OWN_AREA)}` : this.list[area].name;
  }

  /** The live bytes of each group at a moment. */
  liveAt(device, moment) {
    const sums = new Float64Array(this.list.length);
    for (const block of device.present(moment)) sums[this.of[block]] += device.bytes[block];
    return sums;
  }

  /** A pixel for each block. Blocks without a flag in `wanted` are grey; null means that all are wanted. */
  blockColours(device, wanted) {
    const shades = this.list.map((_, rank) => [0, 1, 2, 3].map((shade) => groupColour(rank, shade)));
    const muted = [0, 1, 2, 3].map(mutedColour), pixels = new Uint32Array(device.blocks);
    for (let i = 0; i < pixels.length; i++) {
      pixels[i] = wanted && !wanted[i] ? muted[i & 3] : shades[this.of[i]][i & 3];
    }
    return pixels;
  }

  areaColours() {
    return Uint32Array.from({ length: this.areas }, (_, area) =>
      area === OWN_AREA ? oklch(darkness.matches ? 0.5 : 0.75, 0.01, 80) : groupColour(area, 1));
  }
}

