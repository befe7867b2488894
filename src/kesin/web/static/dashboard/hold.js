// Lists of workloads hold still: a renewal changes the rows that are shown, and neither adds nor removes any.
// New rows are counted behind a button. Ids sort by creation, so a shown row that is missing among its neighbours
// no longer matches: it stays, greyed. (The list of a queue's page is held by the service.)
"use strict";

(() => {
  const ID = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
  const idOf = (row) => ID.exec(row.id)?.[0];
  let fresh = false; // the button was pressed: the list comes as it is
  const hold = (shown, coming, place) => {
    const arrived = new Map([...coming.rows].filter(idOf).map((row) => [idOf(row), row]));
    const ids = [...shown.rows].map(idOf).filter(Boolean), last = [...arrived.keys()].sort()[0] || "";
    const oldest = [...ids].sort()[0], known = new Set(ids);
    const news = [...arrived.keys()].filter((id) => !known.has(id) && id > oldest);
    coming.replaceChildren(...[...shown.rows].map((row) => {
      const now = arrived.get(idOf(row));
      if (now) return now;
      const kept = row.cloneNode(true);
      if (idOf(row) > last) { kept.classList.add("stale"); kept.title = place.dataset.gone; }
      return kept;
    }));
    if (!news.length) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button first";
    button.textContent = place.dataset.word.replace("#", news.length + (news.length === arrived.size ? "+" : ""));
    place.replaceChildren(button);
  };
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { requestConfig, serverResponse } = event.detail, shown = document.querySelector("tbody[data-hold]");
    if (!shown || !requestConfig?.elt.matches("[data-holds]")) return;
    if (fresh) { fresh = false; return; }
    const page = new DOMParser().parseFromString(`<body>${serverResponse}</body>`, "text/html");
    const coming = page.querySelector("tbody[data-hold]"), place = page.querySelector("[data-news]");
    if (!coming || !place || ![...shown.rows].some(idOf)) return;
    hold(shown, coming, place);
    event.detail.serverResponse = page.body.innerHTML;
  });
  document.addEventListener("click", (event) => {
    const place = event.target.closest("[data-news] button")?.closest("[data-news]");
    if (!place) return;
    fresh = true;
    htmx.trigger(place.dataset.news, "renew");
  });
})();
