// Numbers and colours as text.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes with three significant digits and a binary unit. */
function bytes(value) {
  let unit = 0, scaled = Math.abs(value);
  while (scaled >= 1024 && unit < UNITS.length - 1) { scaled /= 1024; unit++; }
  const digits = unit === 0 ? 0 : scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2;
  if (unit > 0 && scaled.toFixed(digits) === "1024" && unit < UNITS.length - 1) { scaled = 1; unit++; }
  return (value < 0 ? "−" : "") + scaled.toFixed(digits) + " " + UNITS[unit];
}

const grouped = new Intl.NumberFormat("en-US");
/** A whole number with separators. */
function count(value) { return grouped.format(value); }

/** "1 hole", "2 holes". */
function plural(value, one, many = one + "s") { return count(value) + " " + (value === 1 ? one : many); }

/** A fraction as per cent. */
function percent(fraction) { return (fraction * 100).toFixed(fraction > 0 && fraction < 0.1 ? 1 : 0) + " %"; }

/** Nanoseconds in a suitable unit. */
function duration(ns) {
  if (ns < 1e3) return ns.toFixed(0) + " ns";
  if (ns < 1e6) return trimmed(ns / 1e3) + " µs";
  if (ns < 1e9) return trimmed(ns / 1e6) + " ms";
  if (ns < 120e9) return trimmed(ns / 1e9) + " s";
  const minutes = Math.floor(ns / 60e9);
  return minutes < 120 ? `${minutes} min ${((ns / 1e9) % 60).toFixed(0)} s` : trimmed(ns / 3600e9) + " h";
}
function trimmed(value) { return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2); }

/** Round values for the marks of an axis, about `max` at most; `base` is 10, or 2 for bytes. */
function ticks(from, to, max, base) {
  const rough = (to - from) / Math.max(1, max);
  let step;
  if (base === 2) step = 2 ** Math.ceil(Math.log2(Math.max(rough, 1)));
  else {
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    step = power * ([1, 2, 5].find((part) => part * power >= rough) ?? 10);
  }
  const list = [];
  for (let at = Math.ceil(from / step) * step; at <= to && list.length < 100; at += step) list.push(at);
  return { list, step };
}

/** A mark of the axis of bytes, in the largest unit that is at most four times the distance of two marks. */
function tickBytes(value, step) {
  if (value === 0) return "0";
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(step * 4) / 10));
  return grouped.format(value / 1024 ** unit) + " " + UNITS[unit];
}

/** A mark of the axis of time, in the largest unit that is at most the distance of two marks. */
function tickTime(ns, step) {
  const [scale, unit] = step >= 1e9 ? [1e9, "s"] : step >= 1e6 ? [1e6, "ms"] : step >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  return count(ns / scale) + " " + unit;
}

/** An element with properties and children; strings become text nodes. */
function el(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
const $ = (id) => document.getElementById(id);

const darkness = matchMedia("(prefers-color-scheme: dark)");
/** A colour of the style sheet. */
function styled(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }

/** An OKLCH colour, of equal lightness for every hue, as a pixel (ABGR). */
function oklch(light, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180), b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (light - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  const part = (linear) => {
    const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
    return Math.max(0, Math.min(255, Math.round(value * 255)));
  };
  const red = part(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s);
  const green = part(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s);
  const blue = part(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s);
  return (0xff000000 | blue << 16 | green << 8 | red) >>> 0;
}
/** A pixel as a CSS colour. */
function css(pixel) { return `rgb(${pixel & 255} ${pixel >> 8 & 255} ${pixel >> 16 & 255})`; }

// Neighbours in the list are far apart in hue; the largest groups get the strongest colours.
const HUES = [255, 55, 150, 20, 305, 200, 100, 340, 230, 75, 175, 280];
/** The colour of the group with this rank; `shade` 0–3 distinguishes adjacent blocks of one group. */
function groupColour(rank, shade = 0) {
  const dark = darkness.matches, step = (shade - 1.5) * 0.018;
  if (rank < HUES.length) {
    const light = (dark ? 0.66 : 0.70) + (rank % 2 ? 0.05 : 0);
    return oklch(light + step, dark ? 0.115 : 0.125, HUES[rank]);
  }
  return oklch((dark ? 0.54 : 0.76) + step, 0.055, (rank * 137.5) % 360);
}
/** The colour of blocks that do not match the search. */
function mutedColour(shade) { return oklch((darkness.matches ? 0.31 : 0.89) + (shade - 1.5) * 0.008, 0.006, darkness.matches ? 250 : 80); }

