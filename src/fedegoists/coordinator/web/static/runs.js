// Follows the run in progress, or the next one, and reloads the page when it has ended. Only one:
// a browser opens six connections to a server, and each followed run keeps one of them.
"use strict";
const WORKED_ON = ["running", "waiting"];

function nextRun() {
  const items = [...document.querySelectorAll(".timeline li")].reverse(); // oldest first
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
