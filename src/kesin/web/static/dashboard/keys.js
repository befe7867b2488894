// Keys: rows by the arrows, a dialog that lists all keys, and one that jumps to any page, queue, site or job.
"use strict";

(() => {
  const typing = (at) => at.matches?.("textarea, select, [contenteditable], input:not([type=checkbox], [type=radio])");
  const rows = () => [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a[href]") && row.offsetParent);
  const link = (row) => row.querySelector("td.job a[href]") || row.querySelector("a[href]");
  let last = null; // the row that was left, if the focus is in none
  const current = (all) => {
    const at = document.activeElement?.closest?.("main tbody tr");
    return all.indexOf(all.includes(at) ? at : document.activeElement === document.body ? last : null);
  };
  const select = (row) => {
    const box = row?.querySelector("input[data-pick]");
    if (box && !box.checked) box.click();
  };
  const move = (step, extends_) => {
    const all = rows(), from = current(all);
    if (!all.length) return false;
    const to = from < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(from + step, 0), all.length - 1);
    if (extends_) { select(all[from]); select(all[to]); }
    last = all[to];
    link(last).focus({ preventScroll: true });
    last.scrollIntoView({ block: "nearest" });
    return true;
  };
  const toggle = () => {
    const all = rows(), box = all[current(all)]?.querySelector("input[data-pick]");
    box?.click();
    return Boolean(box);
  };

  // A dialog is made from its template when it opens, and is gone when it closes.
  const open = (name) => {
    const dialog = document.getElementById(name).content.firstElementChild.cloneNode(true);
    const before = document.activeElement;
    dialog.addEventListener("close", () => { dialog.remove(); before?.focus?.(); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    document.body.append(dialog);
    dialog.showModal();
    htmx.process(dialog);
    return dialog;
  };
  const jump = () => { if (!document.querySelector("dialog[open]")) open("jump-dialog").querySelector("input").focus(); };
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-jump]")) jump();
    if (event.target.closest("[data-keys]")) open("keys-dialog");
  });

  // Results: the field keeps the focus, the arrows go through the list, Enter opens.
  const options = () => [...document.querySelectorAll("#jump-results [role=option]")];
  const choose = (option) => {
    for (const one of options()) one.setAttribute("aria-selected", String(one === option));
    const field = document.getElementById("jump-q");
    field.setAttribute("aria-expanded", String(Boolean(option)));
    option ? field.setAttribute("aria-activedescendant", option.id) : field.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("htmx:afterSwap", (event) => { if (event.detail.target?.id === "jump-results") choose(options()[0]); });
  document.addEventListener("keydown", (event) => {
    if (event.target.id !== "jump-q") return;
    const all = options(), at = all.findIndex((one) => one.getAttribute("aria-selected") === "true");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(all[(at + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length]);
    }
    if (event.key === "Enter") { event.preventDefault(); all[at]?.click(); }
  });

  const KEYS = { ArrowDown: () => move(1), j: () => move(1), ArrowUp: () => move(-1), k: () => move(-1), " ": toggle };
  let before = "";
  document.addEventListener("keydown", (event) => {
    const { key } = event;
    if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "k") { event.preventDefault(); jump(); return; }
    if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const inRow = event.target.closest("main tbody tr") || event.target === document.body || event.target.id === "content";
    const own = event.target.matches("button, summary, input") && key === " "; // a button's own key
    let done = false;
    if (event.shiftKey && (key === "ArrowDown" || key === "ArrowUp")) done = inRow && move(key === "ArrowDown" ? 1 : -1, true);
    else if (KEYS[key] && !own) done = inRow && KEYS[key]();
    else if (key === "/") { const search = document.querySelector("main input[type=search]"); if (search && !search.checkVisibility()) document.querySelector("main [data-fold]")?.click(); search?.focus(); done = Boolean(search); }
    else if (key === "x") document.dispatchEvent(new Event("kesin:forget"));
    else if (key === "?") open("keys-dialog");
    else if (before === "g" && key === "o") location.assign("/dashboard");
    if (done) event.preventDefault();
    before = key;
  });
  document.addEventListener("DOMContentLoaded", () => {
    if (/Mac|iPhone|iPad/.test(navigator.platform)) for (const hint of document.querySelectorAll("[data-jump] kbd")) hint.textContent = "⌘K";
  });
})();
