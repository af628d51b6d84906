// A form that changes something is sent once, however often its button is pressed: a second press
// would make a second key, of which the first is never seen. A page that comes back may send again.
"use strict";
(() => {
  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.method !== "post") return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "1";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });
})();

// Shortcuts of one key: / to the first filter, j and k through the rows of tables, ? for the list.
// Everything can be reached without them; `data-keys="off"` on the page turns them off.
(() => {
  const typing = (at) => at.closest("input, select, textarea, [contenteditable], dialog[open]");
  const rows = () => [...document.querySelectorAll("main tbody tr")].filter((row) => row.offsetParent);

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const here = document.activeElement.closest("main tbody tr");
    const next = here ? all.indexOf(here) + step : step > 0 ? 0 : all.length - 1;
    const row = all[Math.min(Math.max(next, 0), all.length - 1)];
    const target = row.querySelector("th a, td a") || row;
    if (target === row) row.tabIndex = -1;
    target.focus();
    row.scrollIntoView({ block: "nearest" });
  }

  const does = {
    "/": () => document.querySelector("main form.filters :is(input:not([type=hidden]), select)")?.focus(),
    j: () => move(1),
    k: () => move(-1),
    "?": () => document.getElementById("keys")?.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    const off = document.documentElement.dataset.keys === "off";
    if (off || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const act = does[event.key];
    if (!act || typing(event.target)) return;
    event.preventDefault();
    act();
  });
})();
