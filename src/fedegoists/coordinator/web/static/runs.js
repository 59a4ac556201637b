// Follows the runs that are not over yet, and loads the page anew when one has ended.
"use strict";
for (const item of document.querySelectorAll(".timeline li")) {
  if (!["queued", "running", "waiting"].includes(item.dataset.state)) continue;
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
    if (busy) part(".remark").textContent = "ended; load the page again for its results";
    else window.location.reload();
  });
}
