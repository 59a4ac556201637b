// What all pages share: copying, invitations as links and as CSV, and signs of work in progress.
"use strict";

// Gives the reader a file that was made here.
function savedFile(name, content, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

(() => {
  // An invitation may come in the part of the address that browsers do not send.
  const secret = document.getElementById("secret");
  const take = () => {
    if (!secret || !window.location.hash.startsWith("#fe-invitation-")) return;
    secret.value = window.location.hash.slice(1);
    window.history.replaceState(null, "", window.location.pathname);
  };
  window.addEventListener("hashchange", take); // of who is at the login already
  take();

  const invitations = [...document.querySelectorAll(".invitation")];
  for (const one of invitations) one.textContent = `${window.location.origin}/login#${one.textContent}`;

  const csv = document.getElementById("invitations-csv");
  if (csv) {
    csv.hidden = false;
    // A name that begins like a formula would be computed by a spreadsheet.
    const cell = (text) => `"${(/^[=+\-@]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
    csv.addEventListener("click", () => {
      const rows = invitations.map((one) => `${cell(one.dataset.label)},${cell(one.textContent)}`);
      savedFile("invitations.csv", `organisation,link\n${rows.join("\n")}\n`, "text/csv");
    });
  }

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const target = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(target.textContent);
        button.textContent = "Copied";
        if (button.dataset.next) window.location.assign(button.dataset.next);
      } catch {
        window.getSelection().selectAllChildren(target);
        button.textContent = "Selected: press Ctrl+C";
      }
    });
  }

  for (const form of document.querySelectorAll("form[data-busy]")) {
    form.addEventListener("submit", () => {
      const button = form.querySelector("button:not([type=button])");
      button.textContent = form.dataset.busy;
      button.setAttribute("aria-busy", "true");
      setTimeout(() => (button.disabled = true)); // after the form has been sent
    });
  }
  window.addEventListener("pageshow", (event) => {
    if (event.persisted && document.querySelector("[aria-busy]")) window.location.reload();
  });

  // A link to a step opens it, and an error is shown where it is.
  const reveal = () => {
    const target = document.getElementById(window.location.hash.slice(1));
    const details = target && target.closest("details");
    if (details) details.open = true;
  };
  window.addEventListener("hashchange", reveal);
  reveal();
  const problem = document.getElementById("problem");
  if (problem) problem.scrollIntoView({ block: "center" });
})();
