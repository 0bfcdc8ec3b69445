// How the process is: its state, its problems and its numbers, as /status says them.
// Part of the page's one script (index.html).

function rows(id, pairs) {
  const there = [...$(id).rows].map((row) => row.cells[0].textContent);
  if (there.join("\n") !== pairs.map(([name]) => name).join("\n")) {
    $(id).replaceChildren(...pairs.map(([name]) => {
      const row = make("tr");
      const head = make("th", "", name);
      head.scope = "row";
      row.append(head, make("td"));
      return row;
    }));
  }
  pairs.forEach(([, value], index) => { $(id).rows[index].cells[1].textContent = value; });
}

function state(word, isGood) {
  $("state").dataset.state = isGood ? "live" : "broken";
  show("state", word);
}

// Everything that is wrong, as /status says it.
function problems(status) {
  const wrong = [...(status.problems ?? [])];
  if (status.store_error) wrong.push({ code: "store_error", blocking: true, detail: status.store_error });
  $("problems").hidden = wrong.length === 0;
  $("problems").replaceChildren(...wrong.map(({ code, blocking, seconds, detail, advice }) => {
    const line = make("li", blocking ? "blocking" : "");
    const since = seconds === undefined ? "" : ` for ${span(seconds)}`;
    line.append(make("b", "", code), make("span", "", `${since}: ${detail}${advice ? ". " : ""}`), make("span", "advice", advice ?? ""));
    return line;
  }));
}

function numbers(status) {
  const { ingestion } = status;
  const word = !status.ready ? "not ready" : ingestion.connected ? "live" : "away";
  state(word, word === "live");
  show("rate", ingestion.rate.toFixed(ingestion.rate < 10 ? 1 : 0));
  show("lag", span(ingestion.lag_seconds));
  show("received", count(status.accounting?.received));
  show("records", count(status.total_records));
  show("dead", count(status.dead_letters));
  curve.push(ingestion.rate);
  if (curve.length > CURVE_POINTS) curve.shift();
  const top = Math.max(1, ...curve);
  $("curve").setAttribute("points", curve.map((rate, index) => `${index + CURVE_POINTS - curve.length},${(19 - (17 * rate) / top).toFixed(1)}`).join(" "));

  kept(status.collections ?? []);
  outcomes(status);
  intake(status);
  spaces(status.log);
}

function kept(collections) {
  const most = Math.max(1, ...collections.map((each) => each.records));
  $("collections").replaceChildren(...collections.map((each) => {
    const line = make("li");
    const words = make("div");
    words.append(make("span", "", each.collection), make("span", "number", whole.format(each.records)));
    const bar = make("i");
    bar.style.width = `${(100 * each.records) / most}%`;
    line.append(words, bar);
    return line;
  }));
}

function outcomes({ accounting }) {
  show("sum", count(accounting?.received));
  if (!accounting) { rows("outcomes", []); show("verdict", "The store does not answer."); return; }
  // In the order in which they are explained; one that is new to this page still counts.
  const rank = (name) => (OUTCOMES.indexOf(name) + OUTCOMES.length + 1) % (OUTCOMES.length + 1);
  const parts = Object.entries(accounting).filter(([name]) => name !== "received").sort(([a], [b]) => rank(a) - rank(b));
  const sum = parts.reduce((total, [, count]) => total + count, 0);
  rows("outcomes", parts.map(([name, count]) => [name, whole.format(count)]));
  show("verdict", sum === accounting.received ? "They add up: nothing is lost." : `They do not add up: ${whole.format(sum)} are accounted for.`);
  $("verdict").classList.toggle("wrong", sum !== accounting.received);
}

function intake(status) {
  const { ingestion, resync } = status;
  rows("intake", [
    ["frames received", whole.format(ingestion.frames)],
    ...Object.entries(ingestion.cursors ?? {}).map(([name, cursor]) => [`cursor of ${name}`, cursor === null ? "none yet" : whole.format(cursor)]),
    ["waiting for the store", whole.format(ingestion.pending)],
    ["frames held", count(status.held)],
    ["repositories to repair", count(resync?.due)],
    ["being repaired", count(resync?.running)],
    ["repaired since start", count(resync?.done)],
    ["accounts", count(status.accounts)],
    ...(status.timelines === null ? [] : [
      ...(status.timelines.loading === null ? [] : [["timelines loaded", `${status.timelines.loading.percent} %`]]),
      ["timelines in memory", whole.format(status.timelines.readers)],
      ["entries in them", whole.format(status.timelines.entries)],
      ["deliveries pushed", whole.format(status.timelines.pushed)],
      ["fan-outs under way", whole.format(status.timelines.fanouts)],
    ]),
  ]);
}

// What a process that is starting, or on standby, answers instead of its status.
function early(status) {
  problems(status);
  state(status.status ?? "not ready", false);
}
