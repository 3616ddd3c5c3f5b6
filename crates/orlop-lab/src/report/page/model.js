// What a device's columns mean: who is there at a moment, how much that is, and where.
//
// Moment m is after m events; a history of n events has the moments 0 to n. Blocks are in order of birth, which is also
// the order in which they are stacked: a block's place is the sum of the elder ones that are still there.

const ACTIONS = ["allocates", "gives back", "memory is free", "used by a stream", "segment gained", "segment lost",
  "pages mapped", "pages unmapped", "out of memory", "snapshot", "annotation"];
const CLASSES = ["segment", "large", "small", "expandable", "expandable small"];
/** So many blocks are passed over at once if none of them is there. */
const CHUNK = 256;
/** In segments for large requests PyTorch leaves smaller rests with the block. */
const REST = 1 << 20;

/** What stands where the source names no call site, and why it often does not. */
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
      // Of the moments that reserve the most, the one that fills it best.
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
    // The fullest of each 16, 256, … moments: a column of pixels stands for many and shows the fullest.
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

  /** When a moment begins, in nanoseconds from the first event. */
  timeOf(moment) { return this.events ? this.time[Math.min(Math.max(moment - 1, 0), this.events - 1)] : 0; }

  /** When that is, or how long it takes, for a text that goes on; nothing if the source has no clock. */
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

  /** How many blocks are born up to a moment. */
  bornBy(moment) {
    let low = 0, high = this.blocks;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.born[middle] <= moment) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** The blocks that are there at a moment, eldest first; with `pending`, those too that a stream may still use. */
  present(moment, pending = false) {
    const until = this.bornBy(moment), gone = pending ? this.done : this.freed;
    const last = pending ? this.lastDone : this.lastFreed, found = [];
    for (let chunk = 0; chunk * CHUNK < until; chunk++) {
      if (last[chunk] <= moment) continue;
      const end = Math.min(until, (chunk + 1) * CHUNK);
      for (let i = chunk * CHUNK; i < end; i++) if (gone[i] > moment) found.push(i);
    }
    return found;
  }

  /** The largest blocks of a moment, the largest first. */
  largestAt(moment, most) {
    const { bytes } = this, order = (a, b) => bytes[b] - bytes[a] || a - b;
    let kept = [], least = -1;
    for (const block of this.present(moment)) {
      if (bytes[block] <= least) continue;
      kept.push(block);
      if (kept.length < 4 * most) continue;
      kept = kept.sort(order).slice(0, most);
      least = bytes[kept[most - 1]];
    }
    return kept.sort(order).slice(0, most);
  }

  /** The block at this height of a moment's stack; -1 above it. */
  blockAt(moment, height) {
    if (height < 0 || height >= this.live[moment]) return -1;
    let sum = 0;
    for (const block of this.present(moment)) {
      sum += this.bytes[block];
      if (height < sum) return block;
    }
    return -1;
  }

  /** The call site of a block, in a few words. */
  siteOf(block, stacks) { return stacks.name(this.site[block]) || (this.born[block] ? NO_SITE : BEFORE); }

  addressText(address) { return "0x" + (this.base + BigInt(address)).toString(16); }

  /** What is held from the device at a moment, in order of address; neighbours that grow as one are one. */
  segmentsAt(moment) {
    const { born, lost, address, bytes, stream, pool, site, class: kind } = this.extents;
    const there = [];
    for (let i = 0; i < born.length && born[i] <= moment; i++) if (lost[i] > moment) there.push(i);
    there.sort((a, b) => address[a] - address[b]);
    const segments = [];
    for (const i of there) {
      const last = segments.at(-1);
      const grows = last && kind[i] >= 3 && last.kind >= 3 && last.stream === stream[i] && last.pool === pool[i];
      if (grows && last.address + last.bytes === address[i]) last.bytes += bytes[i];
      else segments.push({ address: address[i], bytes: bytes[i], kind: kind[i], stream: stream[i], pool: pool[i],
        site: site[i], free: 0, largest: 0, pieces: [] });
    }
    return segments;
  }

  /** Segments with their pieces (a block, or a hole: block -1), and the figures of the moment. */
  mapAt(moment) {
    const { address, bytes, rest, freed } = this;
    const segments = this.segmentsAt(moment);
    const blocks = this.meta.segments ? this.present(moment, true).sort((a, b) => address[a] - address[b]) : [];
    const sums = { moment, pending: 0, reserved: 0, free: 0, holes: 0, largest: 0, rests: 0, blocks: 0, lost: 0 };
    let next = 0;
    for (const segment of segments) {
      const end = segment.address + segment.bytes;
      sums.reserved += segment.bytes;
      for (; next < blocks.length && address[blocks[next]] < segment.address; next++) sums.lost++;
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
        if (address[block] < at) { sums.lost++; continue; }
        fill(address[block]);
        const held = Math.min(bytes[block] + rest[block], end - at), pending = moment >= freed[block];
        segment.pieces.push({ block, address: at, bytes: held, pending });
        if (pending) sums.pending += held; else sums.rests += held - Math.min(bytes[block], held);
        sums.blocks++;
        at += held;
      }
      fill(end);
      sums.free += segment.free;
      sums.largest = Math.max(sums.largest, segment.largest);
    }
    sums.lost += blocks.length - next;
    return { segments, sums };
  }

  /** What the last event before a moment did. */
  eventText(moment, stacks) {
    if (moment === 0) return "before the first event";
    const event = moment - 1, block = this.blockOf[event];
    const size = block >= 0 ? ` ${bytes(this.bytes[block])} · ${this.siteOf(block, stacks)}` : "";
    return ACTIONS[this.actions[event]] + size;
  }
}

