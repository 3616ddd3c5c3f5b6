// Measures the time per frame: `await orlopReport.bench()` in the browser's console.

/**
 * Zooms in on the middle, pans, and zooms out again. `draw` is the time of drawing in ms, `frame` the time between two
 * frames, which is at least the refresh interval of the screen.
 */
async function bench(app, frames = 60) {
  const { view } = app, draws = [], gaps = [], before = { ...view }, nextFrame = () => new Promise(requestAnimationFrame);
  view.showAll();
  const depth = Math.log((view.x1 - view.x0) / Math.min(view.x1 - view.x0, view.axis === "event" ? 200 : view.length / 5000));
  const third = Math.max(1, Math.floor(frames / 3)), middle = { x: view.width * 0.55, y: view.height * 0.5 };
  await nextFrame();
  let last = performance.now();
  for (let frame = 0; frame < third * 3; frame++) {
    if (frame < third) view.zoom(Math.exp(-depth / third), 1, middle.x, middle.y);
    else if (frame < 2 * third) {
      // The second half of the panning is zoomed out, with half of the history in view.
      if (frame === Math.floor(third * 1.5)) { view.showAll(); view.zoom(0.5, 1, middle.x, middle.y); }
      view.pan(frame % 2 ? -37 : -11, 0);
    } else {
      if (frame === 2 * third) { view.showAll(); view.zoom(Math.exp(-depth), 0.5, middle.x, middle.y); }
      view.zoom(Math.exp(depth / third), 1.02, middle.x, middle.y);
    }
    const start = performance.now();
    app.chart.draw();
    draws.push(performance.now() - start);
    await nextFrame();
    const now = performance.now();
    gaps.push(now - last);
    last = now;
  }
  for (const key of ["x0", "x1", "y0", "y1"]) view[key] = before[key];
  app.changed("view");
  const of = (times) => {
    const sorted = times.slice().sort((a, b) => a - b), at = (quantile) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * quantile))];
    return { median: at(0.5), p95: at(0.95), max: at(1) };
  };
  return { frames: draws.length, events: app.device.events, blocks: app.device.blocks, mode: app.mode,
    pixels: [app.chart.raster.width, app.chart.raster.height], draw: of(draws), frame: of(gaps) };
}

