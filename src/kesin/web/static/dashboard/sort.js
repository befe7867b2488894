// Small tables are sorted in the browser: by a press on a column's head, and again for the other way. So is a list
// that holds still while all rows that match are on the page (else the table has no data-sort, and offers no arrow):
// a renewal leaves its rows where they are.
"use strict";

(() => {
  const chosen = new Map(); // table → [column, up]: a table that is renewed stays sorted
  const nameOf = (table) => [...document.querySelectorAll("table[data-sort]")].indexOf(table);
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const time = cell?.querySelector("time[datetime]");
    return time ? time.dateTime : (cell?.dataset.key ?? cell?.textContent ?? "").trim();
  };
  const sort = (table, column, up) => {
    const order = new Intl.Collator(document.documentElement.lang, { numeric: true, sensitivity: "base" });
    const rows = [...table.tBodies[0].rows];
    rows.sort((one, other) => (up ? 1 : -1) * order.compare(keyOf(one, column), keyOf(other, column)));
    rows.forEach((row, at) => { if (table.tBodies[0].rows[at] !== row) table.tBodies[0].insertBefore(row, table.tBodies[0].rows[at]); });
    mark(table, column, up);
  };
  const mark = (table, column, up) => {
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      if (head.querySelector(".sort")) head.setAttribute("aria-sort", at !== column ? "none" : up ? "ascending" : "descending");
    });
  };
  const enhance = (event) => {
    for (const table of document.querySelectorAll("table[data-sort]")) {
      for (const head of table.tHead.rows[0].cells) {
        if (head.querySelector(".sort, .only-read") || !head.textContent.trim()) continue;
        const button = document.createElement("button"), sign = document.createElement("span");
        button.type = "button";
        button.className = "sort";
        button.title = table.dataset.sort;
        sign.className = "sort-sign";
        sign.setAttribute("aria-hidden", "true");
        button.append(...head.childNodes, sign);
        head.replaceChildren(button);
        head.setAttribute("aria-sort", "none");
      }
      const before = chosen.get(nameOf(table));
      if (before) (event.detail?.requestConfig?.elt.matches("[data-rows]") ? mark : sort)(table, ...before);
    }
  };
  document.addEventListener("click", (event) => {
    const head = event.target.closest("table[data-sort] th button.sort")?.closest("th");
    if (!head) return;
    const table = head.closest("table"), up = head.getAttribute("aria-sort") !== "ascending";
    chosen.set(nameOf(table), [head.cellIndex, up]);
    sort(table, head.cellIndex, up);
  });
  document.addEventListener("DOMContentLoaded", enhance);
  document.addEventListener("htmx:afterSwap", enhance);
})();
