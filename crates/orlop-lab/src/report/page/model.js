// The memory of a device at any moment, computed from its columns: live blocks, totals and addresses.
//
// Moment m is after m events; a history of n events has the moments 0 to n. Blocks are sorted by the moment of their
// allocation and are stacked in this order: the offset of a block is the sum of the live blocks allocated before it.

const ACTIONS = ["allocation", "free requested", "free completed", "stream use", "segment reserved", "segment released",
  "pages mapped", "pages unmapped", "out of memory", "snapshot", "annotation", "refused", "external memory adopted",
  "external memory freed"];
const CLASSES = ["segment", "large", "small", "expandable", "expandable small"];
/** Blocks per chunk. A chunk without a live block is skipped as a whole. */
const CHUNK = 256;
/** PyTorch does not split a block of a large segment if the remainder is at most this. */
const REST = 1 << 20;

/** Names for blocks without a call site. */
const NO_SITE = "(no call site)", BEFORE = "(held before the recording)";

class Device {
  constructor(meta, payload) {
    const get = (name, Type) => column(payload, meta.columns[name], Type);
    const add = (from, length) => length.map((value, i) => from[i] + value);
    this.meta = meta;
    this.events = meta.events;
    this.actions = get("action", Uint8Array);
    this.time = get("time", Float64Array);
    for (let i = 1; i < this.time.length; i++) if (this.time[i] < this.time[i - 1]) this.time[i] = this.time[i - 1];
    this.born = get("born");
    this.freed = add(this.born, get("life"));
    this.done = add(this.freed, get("wait"));
    this.bytes = get("bytes", Float64Array);
    this.rest = get("rest", Float64Array);
    this.address = get("address", Float64Array);
    for (const name of ["stream", "site", "freed_by", "text"]) this[name] = get(name);
    this.kind = get("kind", Uint8Array);
    this.category = get("category", Uint8Array);
    this.blocks = this.born.length;
    this.extents = Object.fromEntries(["born", "lost", "address", "bytes", "stream", "site", "pool", "class"]
      .map((name) => [name, get("extent_" + name, Float64Array)]));
    this.base = BigInt(meta.base);
    // Sources without a clock number their events.
    this.timed = this.timeOf(this.events) > this.events;
    this.sumUp();
    this.index();
  }

  /** Live and reserved bytes at each moment, and their peaks. */
  sumUp() {
    const moments = this.events + 1, { extents } = this;
    this.live = new Float64Array(moments + 1);
    for (let i = 0; i < this.blocks; i++) {
      this.live[this.born[i]] += this.bytes[i];
      this.live[this.freed[i]] -= this.bytes[i];
    }
    this.reserved = new Float64Array(moments + 1);
    for (let i = 0; i < extents.born.length; i++) {
      this.reserved[extents.born[i]] += extents.bytes[i];
      if (extents.lost[i] < moments) this.reserved[extents.lost[i]] -= extents.bytes[i];
    }
    let peak = 0, peakReserved = 0;
    for (let m = 1; m < moments; m++) {
      this.live[m] += this.live[m - 1];
      this.reserved[m] += this.reserved[m - 1];
      if (this.live[m] > this.live[peak]) peak = m;
      // Of the moments with the most reserved bytes, the one with the most live bytes.
      const more = this.reserved[m] - this.reserved[peakReserved];
      if (more > 0 || (more === 0 && this.live[m] > this.live[peakReserved])) peakReserved = m;
    }
    this.peak = peak;
    this.peakReserved = peakReserved;
  }

  index() {
    const chunks = Math.ceil(this.blocks / CHUNK);
    this.lastFreed = new Uint32Array(chunks);
    this.lastDone = new Uint32Array(chunks);
    this.blockOf = new Int32Array(this.events).fill(-1);
    for (let i = 0; i < this.blocks; i++) {
      const chunk = Math.floor(i / CHUNK);
      this.lastFreed[chunk] = Math.max(this.lastFreed[chunk], this.freed[i]);
      this.lastDone[chunk] = Math.max(this.lastDone[chunk], this.done[i]);
      for (const m of [this.born[i], this.freed[i], this.done[i]]) {
        if (m > 0 && m <= this.events) this.blockOf[m - 1] = i;
      }
    }
    // The moment with the most live bytes of each 16, 256, … moments. A column of pixels shows that of its range.
    this.fullestOf = [];
    const live = this.live;
    for (let below = null, length = this.events + 1; length > 16;) {
      const level = new Uint32Array(Math.ceil(length / 16));
      for (let i = 0; i < level.length; i++) {
        let best = below ? below[i * 16] : i * 16;
        for (let j = i * 16 + 1; j < Math.min(i * 16 + 16, length); j++) {
          const moment = below ? below[j] : j;
          if (live[moment] > live[best]) best = moment;
        }
        level[i] = best;
      }
      this.fullestOf.push(level);
      [below, length] = [level, level.length];
    }
  }

  /** The moment from `from` to `to` (inclusive) with the most live bytes. */
  fullest(from, to) {
    const { live, fullestOf } = this;
    let best = from, low = from, high = to + 1, level = -1;
    const take = (i) => {
      const moment = level < 0 ? i : fullestOf[level][i];
      if (live[moment] > live[best]) best = moment;
    };
    while (high - low > 32 && level + 1 < fullestOf.length) {
      while (low % 16) take(low++);
      while (high % 16) take(--high);
      low /= 16; high /= 16; level++;
    }
    while (low < high) take(low++);
    return best;
  }

  /** The start of a moment, in nanoseconds since the first event. */
  timeOf(moment) { return this.events ? this.time[Math.min(Math.max(moment - 1, 0), this.events - 1)] : 0; }

  /** A time or duration as text, after `before`; empty if the source has no clock. */
  clock(ns, before = ", ") { return this.timed ? before + duration(ns) : ""; }

  /** The moment at this time. */
  momentAt(time) {
    let low = 0, high = this.events;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.time[middle] <= time) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** The number of blocks allocated up to a moment. */
  bornBy(moment) {
    let low = 0, high = this.blocks;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.born[middle] <= moment) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** The live blocks at a moment, in order of allocation; with `pending`, also those that a stream may still use. */
  present(moment, pending = false) {
    const until = this.bornBy(moment), ends = pending ? this.done : this.freed;
    const last = pending ? this.lastDone : this.lastFreed, found = [];
    for (let chunk = 0; chunk * CHUNK < until; chunk++) {
      if (last[chunk] <= moment) continue;
      const end = Math.min(until, (chunk + 1) * CHUNK);
      for (let i = chunk * CHUNK; i < end; i++) if (ends[i] > moment) found.push(i);
    }
    return found;
  }

  /** The `max` largest live blocks at a moment, the largest first. */
  largestAt(moment, max) {
    const { bytes } = this, order = (a, b) => bytes[b] - bytes[a] || a - b;
    let largest = [], minimum = -1;
    for (const block of this.present(moment)) {
      if (bytes[block] <= minimum) continue;
      largest.push(block);
      if (largest.length < 4 * max) continue;
      largest = largest.sort(order).slice(0, max);
      minimum = bytes[largest[max - 1]];
    }
    return largest.sort(order).slice(0, max);
  }

  /** The block at this height of the stack at a moment; -1 above it. */
  blockAt(moment, height) {
    if (height < 0 || height >= this.live[moment]) return -1;
    let sum = 0;
    for (const block of this.present(moment)) {
      sum += this.bytes[block];
      if (height < sum) return block;
    }
    return -1;
  }

  /** The name of a block's call site. */
  siteOf(block, stacks) { return stacks.name(this.site[block]) || (this.born[block] ? NO_SITE : BEFORE); }

  addressText(address) { return "0x" + (this.base + BigInt(address)).toString(16); }

  /** The segments at a moment, by address. Adjacent extents of one expandable segment are merged. */
  segmentsAt(moment) {
    const { born, lost, address, bytes, stream, pool, site, class: kind } = this.extents;
    const extents = [];
    for (let i = 0; i < born.length && born[i] <= moment; i++) if (lost[i] > moment) extents.push(i);
    extents.sort((a, b) => address[a] - address[b]);
    const segments = [];
    for (const i of extents) {
      const last = segments.at(-1);
      const grows = last && kind[i] >= 3 && last.kind >= 3 && last.stream === stream[i] && last.pool === pool[i];
      if (grows && last.address + last.bytes === address[i]) last.bytes += bytes[i];
      else segments.push({ address: address[i], bytes: bytes[i], kind: kind[i], stream: stream[i], pool: pool[i],
        site: site[i], free: 0, largest: 0, pieces: [] });
    }
    return segments;
  }

  /** The segments at a moment with their pieces (blocks, and holes as block -1), and the totals. */
  mapAt(moment) {
    const { address, bytes, rest, freed } = this;
    const segments = this.segmentsAt(moment);
    const blocks = this.meta.segments ? this.present(moment, true).sort((a, b) => address[a] - address[b]) : [];
    const sums = { moment, pending: 0, reserved: 0, free: 0, holes: 0, largest: 0, rests: 0, blocks: 0, outside: 0 };
    let next = 0;
    for (const segment of segments) {
      const end = segment.address + segment.bytes;
      sums.reserved += segment.bytes;
      for (; next < blocks.length && address[blocks[next]] < segment.address; next++) sums.outside++;
      let at = segment.address;
      const fill = (to) => {
        if (to <= at) return;
        const last = segment.pieces.at(-1);
        if (segment.kind === 1 && last && last.block >= 0 && to - at <= REST) {
          last.bytes += to - at;
          sums[last.pending ? "pending" : "rests"] += to - at;
        } else {
          segment.pieces.push({ block: -1, address: at, bytes: to - at, pending: false });
          segment.free += to - at;
          segment.largest = Math.max(segment.largest, to - at);
          sums.holes++;
        }
        at = to;
      };
      for (; next < blocks.length && address[blocks[next]] < end; next++) {
        const block = blocks[next];
        if (address[block] < at) { sums.outside++; continue; }
        fill(address[block]);
        const used = Math.min(bytes[block] + rest[block], end - at), pending = moment >= freed[block];
        segment.pieces.push({ block, address: at, bytes: used, pending });
        if (pending) sums.pending += used; else sums.rests += used - Math.min(bytes[block], used);
        sums.blocks++;
        at += used;
      }
      fill(end);
      sums.free += segment.free;
      sums.largest = Math.max(sums.largest, segment.largest);
    }
    sums.outside += blocks.length - next;
    return { segments, sums };
  }

  /** The last event before a moment, as text. */
  eventText(moment, stacks) {
    if (moment === 0) return "before the first event";
    const event = moment - 1, block = this.blockOf[event];
    const size = block >= 0 ? ` ${bytes(this.bytes[block])} · ${this.siteOf(block, stacks)}` : "";
    const refusal = this.meta.refusals.find((one) => one.moment === moment);
    return ACTIONS[this.actions[event]] + size + (refusal ? ` · ${refusalText(refusal)}` : "");
  }
}

