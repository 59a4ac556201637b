// Follows the run that is worked on, or is next, and loads the page anew when it has ended. Only
// one: a browser has six connections to a place, and each that follows a run keeps one of them.
"use strict";
const WORKED_ON = ["running", "waiting"];

function nextRun() {
  const items = [...document.querySelectorAll(".timeline li")].reverse(); // the first one first
  const now = items.find((item) => WORKED_ON.includes(item.dataset.state));
  return now || items.find((item) => item.dataset.state === "queued");
}

function followRun(item) {
  if (!item) return;
  const address = `/api/consortia/${item.dataset.consortium}/runs/${item.dataset.run}/events`;
  const events = new EventSource(address);
  const part = (name) => item.querySelector(name);
  events.onmessage = (event) => {
    const run = JSON.parse(event.data);
    item.dataset.state = run.state;
    part(".state").textContent = run.state;
    part(".stage").textContent = run.state === "running" ? run.stage : "";
    part(".remark").textContent = run.remark;
    const bar = part("progress");
    bar.max = run.total || 1;
    bar.value = run.done;
  };
  events.addEventListener("end", () => {
    events.close();
    // Not under somebody's hands: forms that are being filled in stay.
    const busy = document.activeElement && document.activeElement.matches("input, select");
    if (!busy) {
      window.location.reload();
      return;
    }
    part(".remark").textContent = "ended; load the page again for its results";
    followRun(nextRun());
  });
}

followRun(nextRun());
