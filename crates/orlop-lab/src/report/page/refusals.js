// Refused requests: marks on the timeline by cause and outcome, and their legend.

/** The colour of a cause, and half the height of its mark. */
const CAUSES = { device: { colour: "bad", shape: "triangle" }, limit: { colour: "limit", shape: "square" },
  budget: { colour: "budget", shape: "diamond" } };
const OUTCOMES = ["failed", "retried", "served"];

/** The refused requests of a device by cause and outcome: a list of classes, in the order of the legend. */
function refusalClasses(meta) {
  const classes = Object.keys(CAUSES).flatMap((cause) => OUTCOMES.map((outcome) => ({ cause, outcome, list: [] })));
  for (const refusal of meta.refusals) {
    classes.find((one) => one.cause === refusal.cause && one.outcome === refusal.outcome)?.list.push(refusal);
  }
  return classes.filter((one) => one.list.length);
}

/** What refused a request and what became of it, as text. */
function refusalText({ cause, refuser, outcome, bytes: size, left }) {
  const by = cause === "budget" ? `the budget of ${refuser}` : cause === "limit" ? `the limit of ${refuser}` : `the device (${refuser})`;
  return `${bytes(size)} refused by ${by}, ${bytes(left)} left: ${outcome}`;
}

/** Draws the mark of a class: filled if the request failed, pale if it was retried, an outline if it was served. */
function drawRefusal(context, { cause, outcome }, x, y) {
  const { colour, shape } = CAUSES[cause], size = 4;
  context.beginPath();
  if (shape === "square") context.rect(x - size + 0.5, y - size + 0.5, 2 * size - 1, 2 * size - 1);
  else {
    context.moveTo(x - size, shape === "triangle" ? y - size : y);
    if (shape === "diamond") context.lineTo(x, y - size);
    context.lineTo(x + size, shape === "triangle" ? y - size : y);
    context.lineTo(x, y + size);
    context.closePath();
  }
  context.fillStyle = outcome === "served" ? styled("panel") : styled(colour);
  context.globalAlpha = outcome === "retried" ? 0.35 : 1;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = styled(colour);
  context.lineWidth = 1.5;
  context.stroke();
}

/** Draws the marks at the upper edge of the plot: one for each pixel and class, failures last. */
function drawRefusals(chart, context, width) {
  for (const one of chart.app.refusals.slice().sort((a, b) => OUTCOMES.indexOf(b.outcome) - OUTCOMES.indexOf(a.outcome))) {
    let last = -1;
    for (const { moment } of one.list) {
      const x = Math.round(chart.momentX(moment));
      if (x < 0 || x > width || x === last) continue;
      last = x;
      drawRefusal(context, one, x, 5);
    }
  }
}

/** The legend of the marks. A click goes to the next request of the class. */
function showRefusals(app) {
  const items = app.refusals.map((one) => {
    const icon = el("canvas"), largest = one.list.reduce((a, b) => b.bytes > a.bytes ? b : a);
    sized(icon, 12, 12, icon.getContext("2d"));
    drawRefusal(icon.getContext("2d"), one, 6, 6);
    const refusers = [...new Set(one.list.map((refusal) => refusal.refuser))].slice(0, 8).join(", ");
    const button = el("button", { title: `${refusers}\nthe largest: ${refusalText(largest)}` }, icon,
      `refused by ${one.cause}, ${one.outcome}: ${count(one.list.length)}`);
    button.addEventListener("click", () => {
      const next = one.list.find((refusal) => refusal.moment > app.cursor) ?? one.list[0];
      app.setCursor(next.moment, true);
    });
    return button;
  });
  $("refusals").replaceChildren(...items);
  $("refusals").hidden = !items.length;
}
