// Decodes the data of the page into columns of numbers.

/** Decodes the page's own data. */
function load() {
  const text = $("data").textContent.trim();
  $("data").textContent = "";
  return decode(text);
}

/** Decodes the data of a report. The columns of a device are decoded when it is first shown. */
async function decode(text) {
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const all = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(all.buffer).getUint32(0, true);
  const meta = JSON.parse(new TextDecoder().decode(all.subarray(4, 4 + length)));
  const payload = all.subarray(4 + length);
  return { meta, payload, stacks: new Stacks(meta.stacks, payload) };
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), all = new Uint8Array(binary.length);
  for (let i = 0; i < all.length; i++) all[i] = binary.charCodeAt(i);
  return all;
}

/** Decodes a column of LEB128 numbers; differences have their sign in the lowest bit. */
function column(payload, span, Type = Uint32Array) {
  const values = new Type(span.count);
  let at = span.at, sum = 0;
  for (let i = 0; i < span.count; i++) {
    let byte = payload[at++], value = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = payload[at++];
      value += (byte & 127) * scale;
    }
    if (span.delta) value = sum += value % 2 ? -(value + 1) / 2 : value / 2;
    values[i] = value;
  }
  return values;
}

/** The call sites, each with a name and frames. */
class Stacks {
  constructor(table, payload) {
    const get = (name) => column(payload, table.columns[name]);
    this.texts = table.texts;
    this.functions = get("frame_function");
    this.files = get("frame_file");
    this.lines = get("frame_line");
    this.names = get("stack_name");
    this.frames = get("stack_frames");
    this.starts = new Uint32Array(this.names.length + 1);
    get("stack_depth").forEach((depth, i) => { this.starts[i + 1] = this.starts[i] + depth; });
  }

  name(site) { return this.texts[this.names[site]]; }

  /** The frames of a site, innermost first. */
  of(site) {
    return Array.from(this.frames.subarray(this.starts[site], this.starts[site + 1]), (frame) => ({
      name: this.texts[this.functions[frame]], file: this.texts[this.files[frame]], line: this.lines[frame],
    }));
  }

  /** A flag for each site with this lower-case text in its name, a function or a file. */
  search(text) {
    const has = Uint8Array.from(this.texts, (known) => known.toLowerCase().includes(text) ? 1 : 0);
    const frame = Uint8Array.from(this.functions, (name, i) => has[name] | has[this.files[i]]);
    return Uint8Array.from(this.names, (name, site) => {
      if (has[name]) return 1;
      for (let i = this.starts[site]; i < this.starts[site + 1]; i++) if (frame[this.frames[i]]) return 1;
      return 0;
    });
  }
}

