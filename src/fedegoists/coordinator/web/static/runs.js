// Follows the run in progress, or the next one, and reloads the page when it has ended. Only one:
// a browser opens six connections to a server, and each followed run keeps one of them.
"use strict";
const WORKED_ON = ["running", "waiting"];

function nextRun() {
  const items = [...document.querySelectorAll(".timeline li")];
  items.sort((one, other) => one.dataset.run - other.dataset.run); // oldest first
  const now = items.find((item) => WORKED_ON.includes(item.dataset.state));
  return now || items.find((item) => item.dataset.state === "queued");
}

function spoken(seconds) {
  if (seconds < 90) return `about ${Math.max(1, Math.round(seconds))} s left`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `about ${minutes} min left` : `about ${Math.round(minutes / 60)} h left`;
}

// The time left, from the time that the counted part has taken since it was first seen here. What is
// counted is all of the training, but only a part of what the words name after a colon.
function timeLeft(seen, run) {
  const isPart = run.words.includes(": ");
  const kind = `${isPart ? run.words : run.stage.split(": ")[0]}/${run.total}`;
  const now = performance.now() / 1000;
  if (seen.kind !== kind || run.done < seen.done) Object.assign(seen, { kind, done: run.done, at: now });
  const counted = run.done - seen.done;
  if (counted <= 0 || now - seen.at < 2) return "";
  const left = ((now - seen.at) / counted) * (run.total - run.done);
  return spoken(left) + (isPart ? " in this part" : "");
}

function followRun(item) {
  if (!item) return;
  const address = `/api/consortia/${item.dataset.consortium}/runs/${item.dataset.run}/events`;
  const events = new EventSource(address);
  const part = (name) => item.querySelector(name);
  const seen = {};
  events.onmessage = (event) => {
    const run = JSON.parse(event.data);
    item.dataset.state = run.state;
    part(".state").textContent = run.state;
    part(".stage").textContent = run.words;
    part(".remark").textContent = run.state === "waiting" ? run.remark : "";
    const left = part(".left");
    if (left) left.textContent = run.state === "running" ? timeLeft(seen, run) : "";
    const bar = part("progress");
    bar.max = run.total || 1;
    if (run.total) bar.value = run.done;
    else bar.removeAttribute("value"); // it moves, as nothing is counted
  };
  events.addEventListener("end", () => {
    events.close();
    // Not while a form is being filled in.
    const busy = document.activeElement && document.activeElement.matches("input, select");
    if (!busy) {
      window.location.reload();
      return;
    }
    part(".remark").textContent = "ended; reload the page for its results";
    followRun(nextRun());
  });
}

followRun(nextRun());
