// When the service does not answer: a banner says since when and when the next try is, and nothing that needs
// the service can be pressed until it is back. dashboard.js tells of answers (kesin:lost, kesin:found) and doubts.
"use strict";

(() => {
  const FIRST_MS = 2000, MOST_MS = 30000, PATIENCE_MS = 8000;
  const ACTIONS = "button[hx-get], button[hx-post], form[hx-post] button, form[method=post] button, a.button:is([hx-get], [hx-post])";
  let lost = false, wait = FIRST_MS, due = 0, timer = null, clock = null, probing = null;
  const banner = () => document.getElementById("offline");

  const probe = () => {
    const asked = fetch("/health/live", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    const there = asked.then((answer) => answer.status !== 502 && answer.status !== 504, () => false);
    probing ??= there.then((answers) => {
      probing = null;
      document.dispatchEvent(new CustomEvent("kesin:answer", { detail: answers }));
      if (!answers && lost) plan();
    });
  };
  const say = () => {
    const seconds = Math.max(0, Math.ceil((due - Date.now()) / 1000)), words = banner().dataset;
    banner().querySelector("[data-next]").textContent = probing ? words.trying : words.next.replace("#", seconds);
  };
  const plan = () => {
    clearTimeout(timer);
    due = Date.now() + wait;
    timer = setTimeout(() => { probe(); say(); }, wait);
    wait = Math.min(2 * wait, MOST_MS);
    say();
  };

  // What is pressed meanwhile would be lost: the buttons say so, and take no press.
  const disable = () => {
    for (const button of document.querySelectorAll(ACTIONS)) {
      if (button.dataset.offline !== undefined) continue;
      button.dataset.offline = button.title;
      button.title = banner().dataset.reason;
      button.setAttribute("aria-disabled", "true");
    }
  };
  const enable = () => {
    for (const button of document.querySelectorAll("[data-offline]")) {
      button.title = button.dataset.offline;
      if (!button.title) button.removeAttribute("title");
      delete button.dataset.offline;
      button.removeAttribute("aria-disabled");
    }
  };
  const refuse = (event) => {
    const held = event.type === "submit" ? event.target.matches("[method=post], [hx-post]") : event.target.closest?.("[data-offline]");
    if (!lost || !held) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  document.addEventListener("click", refuse, true);
  document.addEventListener("submit", refuse, true);

  document.addEventListener("kesin:lost", () => {
    lost = true;
    wait = FIRST_MS;
    const since = new Date().toLocaleTimeString(document.documentElement.lang, { timeZone: document.documentElement.dataset.zone });
    banner().querySelector("[data-since]").textContent = banner().dataset.since.replace("#", since);
    banner().hidden = false;
    disable();
    plan();
    clock = setInterval(say, 1000);
  });
  document.addEventListener("kesin:found", () => {
    lost = false;
    clearTimeout(timer);
    clearInterval(clock);
    banner().hidden = true;
    enable();
  });
  document.addEventListener("kesin:doubt", () => { if (!lost) probe(); });
  addEventListener("offline", probe);
  addEventListener("online", () => { if (lost) probe(); });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-try]")) return;
    wait = FIRST_MS;
    probe();
    say();
  });
})();
