// What a page cannot do by itself: keep a selection while it is renewed, tell when it lost touch.
"use strict";

(() => {
  const message = () => document.getElementById("message");

  // While a sheet is open the rest of the page lies behind it: what goes wrong is said in the sheet.
  const sayInSheet = (sheet, text) => {
    sheet.querySelector("[data-error]")?.remove();
    if (!text) return;
    const line = document.getElementById("sheet-error").content.firstElementChild.cloneNode(true);
    line.dataset.error = "";
    line.querySelector("span").textContent = text;
    const buttons = sheet.querySelector(".sheet-actions");
    buttons ? buttons.before(line) : sheet.append(line);
    line.scrollIntoView({ block: "nearest" });
  };
  const say = (text) => {
    const sheet = document.querySelector("dialog[open]");
    if (sheet) { sayInSheet(sheet, text); return; }
    const place = message();
    place.textContent = "";
    if (!text) return;
    const line = document.createElement("p");
    line.textContent = text;
    place.append(line);
    clearTimeout(say.over);
    say.over = setTimeout(() => { place.textContent = ""; }, 6000);
  };

  // Losing touch: offline.js says it, and takes it back when the next answer comes.
  let lost = false;
  const touch = (there) => {
    if (there !== lost) return;
    lost = !there;
    document.dispatchEvent(new Event(lost ? "kesin:lost" : "kesin:found"));
    age();
  };
  document.addEventListener("kesin:answer", (event) => touch(event.detail));
  // How old what is shown is: counted from the last answer, and not called live while none comes.
  let answered = Date.now();
  const age = () => {
    const words = message().dataset, seconds = Math.max(0, Math.round((Date.now() - answered) / 1000));
    for (const one of document.querySelectorAll("[data-fresh]")) {
      one.dataset.word ??= one.textContent;
      one.textContent = `${lost ? words.cut : one.dataset.word} · ${words.ago.replace("#", seconds)}`;
      one.classList.toggle("stale", lost);
    }
  };
  document.addEventListener("DOMContentLoaded", () => { age(); setInterval(age, 1000); });
  document.addEventListener("htmx:sendError", () => touch(false));
  document.addEventListener("htmx:timeout", () => touch(false));
  document.addEventListener("htmx:afterOnLoad", (event) => {
    if ((event.detail.requestConfig?.verb === "get" || event.detail.elt.matches("[data-rows]")) && event.detail.target?.closest?.("main")) answered = Date.now();
    touch(true);
  });
  document.addEventListener("htmx:responseError", (event) => {
    const answer = event.detail.xhr;
    if (answer.status === 502 || answer.status === 504) { touch(false); return; } // a proxy's word, not the service's
    const page = new DOMParser().parseFromString(answer.responseText || "", "text/html");
    const words = page.querySelector(".alert span, .empty p");
    const named = page.querySelector("[data-field]")?.dataset.field;
    const field = named && event.detail.elt.closest("form")?.elements.namedItem(named);
    if (field instanceof HTMLElement && words) {
      unmark(field.form);
      markField(field, words.textContent);
      goTo(field);
      return;
    }
    say(message().dataset.failed + (words ? words.textContent : answer.status));
    if (answer.status === 409) htmx.trigger(document.body, "kesin:forget"); // what is shown is old: renew it
  });

  // Errors at their fields. A list of errors names the ids of fields: each field is marked and described by its
  // error. An empty field is marked only after its form was sent once. The first of a rejected form gets the focus.
  let sent = false;
  const fieldOf = (id) => {
    const described = document.querySelector(`[aria-describedby~="${CSS.escape(id)}"]`);
    if (described) return described;
    for (let at = id; at; at = at.slice(0, Math.max(0, at.lastIndexOf("/")))) {
      const field = document.getElementById(at);
      if (field && !field.hidden) return field;
    }
    return document.querySelector("[data-any-field]");
  };
  const goTo = (field) => {
    const inside = field.matches("fieldset") ? field.querySelector("input:not([type=hidden]), select, textarea, button") : field;
    (inside ?? field).focus({ preventScroll: true });
    (inside ?? field).scrollIntoView({ block: "center" });
  };
  const markField = (field, text) => {
    const id = `m-${field.id || field.name}`, before = document.getElementById(id);
    if (before) { before.append(document.createElement("br"), text); return; }
    const line = document.createElement("p");
    line.className = "error-text";
    line.id = id;
    line.textContent = text;
    (field.querySelector("legend") ?? field).after(line);
    field.dataset.marked = field.getAttribute("aria-describedby") ?? "";
    field.setAttribute("aria-describedby", `${id} ${field.dataset.marked}`.trim());
    if (!field.matches("fieldset")) field.setAttribute("aria-invalid", "true");
  };
  const unmark = (form) => {
    for (const line of form.querySelectorAll(".error-text[id^=m-]")) line.remove();
    for (const field of form.querySelectorAll("[data-marked]")) {
      field.dataset.marked ? field.setAttribute("aria-describedby", field.dataset.marked) : field.removeAttribute("aria-describedby");
      field.removeAttribute("aria-invalid");
      delete field.dataset.marked;
    }
  };
  let refused = false;
  const markAll = () => {
    const form = document.querySelector("form[data-listed]");
    if (!form) return;
    const list = document.querySelector("[data-errors]:has([data-at])"), rejected = list && (refused || list.matches("[data-rejected]"));
    if (rejected) {
      sent = true;
      refused = false;
      list.removeAttribute("data-rejected");
      document.querySelector("[data-summary]")?.append(list.parentElement); // from beside the form to its top
    }
    unmark(form);
    for (const error of list?.querySelectorAll("[data-at]") ?? []) {
      const field = fieldOf(error.dataset.at);
      if (field && (sent || field.value !== "")) markField(field, error.textContent);
    }
    const first = rejected && form.querySelector("[data-marked]");
    if (first) goTo(first);
  };
  document.addEventListener("htmx:beforeSwap", (event) => { // a rejected form: its errors are shown
    if (event.detail.xhr.status !== 422 || !event.detail.xhr.getResponseHeader("HX-Retarget")) return;
    event.detail.shouldSwap = true;
    event.detail.isError = false;
    refused = true; // a preview that arrives before this has settled does not undo it
  });
  document.addEventListener("htmx:afterSettle", markAll);
  document.addEventListener("DOMContentLoaded", () => {
    const first = document.querySelector("main [aria-invalid=true], main fieldset[aria-describedby^=e-]");
    first ? goTo(first) : markAll();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-errors] a[href^='#']");
    const field = link && fieldOf(decodeURIComponent(link.hash.slice(1)));
    if (field) { event.preventDefault(); goTo(field); }
  });

  // A field that narrows a table on the page to the rows with its text.
  const narrow = () => {
    for (const field of document.querySelectorAll("[data-find]")) {
      const lang = document.documentElement.lang, text = field.value.trim().toLocaleLowerCase(lang);
      for (const row of document.querySelectorAll(`${field.dataset.find} tbody tr`)) row.hidden = !row.textContent.toLocaleLowerCase(lang).includes(text);
    }
  };
  for (const happens of ["htmx:afterSettle", "input"]) document.addEventListener(happens, narrow);

  // A new order: the totals of its parts, and cells of a spreadsheet that are pasted into its table.
  const addUp = () => {
    const place = document.querySelector("[data-totals]");
    if (!place) return;
    const value = (part, column) => Number((part.querySelector(`[name$="/${column}"]`)?.value ?? "").trim().replace(",", ".")) || 0;
    const shown = (number) => number.toLocaleString(document.documentElement.lang, { maximumFractionDigits: 2 });
    let pieces = 0, area = 0;
    for (const part of document.querySelectorAll(".parts tbody")) {
      pieces += value(part, "quantity");
      area += value(part, "quantity") * value(part, "length_cm") * value(part, "width_cm") / 10000;
    }
    place.querySelector("[data-pieces]").textContent = shown(pieces);
    place.querySelector("[data-area]").textContent = shown(area);
    place.hidden = pieces === 0;
  };
  for (const happens of ["DOMContentLoaded", "htmx:afterSettle", "input"]) document.addEventListener(happens, addUp);
  document.addEventListener("paste", (event) => {
    const rows = event.target.closest?.("[data-paste]"), cell = event.target.name?.match(/^parts\/(.+)$/);
    const block = event.clipboardData?.getData("text/plain") ?? "";
    if (!rows || !cell || !/[\t\n]/.test(block.trimEnd())) return;
    event.preventDefault();
    htmx.ajax("POST", rows.dataset.paste, { source: rows, target: rows, swap: "outerHTML", values: { do: `paste:${cell[1]}`, block } });
  });

  // A frame shows the document of the form's values: they are sent into it, and kept nowhere.
  document.addEventListener("htmx:load", (event) => {
    const frame = event.detail.elt.parentElement?.querySelector("iframe[data-document]:not([data-filled])");
    if (!frame) return;
    frame.dataset.filled = "";
    const form = document.createElement("form");
    Object.assign(form, { method: "post", action: frame.dataset.document, target: frame.name, hidden: true });
    for (const [name, value] of new FormData(document.getElementById("pdf-form"))) {
      const field = document.createElement("input");
      Object.assign(field, { type: "hidden", name, value });
      form.append(field);
    }
    document.body.append(form);
    form.submit();
    form.remove();
  });

  // A sheet is a dialog: it opens when it arrives and is gone when it closes.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const sheet = event.detail.elt.closest?.("dialog[open]");
    if (sheet) { sayInSheet(sheet, ""); unmark(sheet); }
  });
  let opener = null; // the focus returns to it when an answer takes the dialog away
  document.addEventListener("htmx:load", (event) => {
    const sheet = event.detail.elt.closest?.("dialog") || event.detail.elt.querySelector?.("dialog");
    if (sheet && !sheet.open) {
      sheet.addEventListener("close", () => sheet.remove());
      sheet.dataset.now = document.getElementById("job-head")?.dataset.now || "";
      if (document.activeElement !== document.body) opener = document.activeElement;
      sheet.showModal();
    }
    restore();
  });
  // The state an action found is noted as its result arrives: before anything settles the page may show the next one.
  const found = () => {
    const head = document.getElementById("job-head");
    for (const did of head ? document.querySelectorAll("#result > *") : []) did.dataset.before ??= head.dataset.now;
  };
  for (const happens of ["htmx:oobAfterSwap", "htmx:afterSwap"]) document.addEventListener(happens, found);
  // A job's page renews itself behind a dialog: one about a state that is gone says so and acts no more.
  document.addEventListener("htmx:afterSettle", () => {
    const head = document.getElementById("job-head"), sheet = document.querySelector("dialog[open]");
    if (!sheet && opener && document.activeElement === document.body) opener.focus({ preventScroll: true });
    if (!sheet) opener = null;
    // What an action did is said until the job moves on: to another state than the action led to.
    for (const did of head ? document.querySelectorAll("#result > *") : []) {
      const { now } = head.dataset, led = did.dataset.led ?? (did.querySelector("[data-state]") ?? did).dataset.state;
      if (now !== did.dataset.before && led && now.split(" ")[0] !== led) did.remove();
      else if (now !== did.dataset.before) did.dataset.led = now.split(" ")[0];
    }
    if (!head || !sheet || sheet.dataset.now === head.dataset.now) return;
    sheet.dataset.now = head.dataset.now;
    for (const button of sheet.querySelectorAll(".sheet-actions :not([data-close])")) button.disabled = true;
    sayInSheet(sheet, head.dataset.moved);
  });
  // The text is selected too: without a secure connection a page may not write to the clipboard.
  const copy = async (button, source) => {
    getSelection().selectAllChildren(source);
    try { await navigator.clipboard.writeText(source.textContent); } catch { return; }
    button.querySelector("span").textContent = button.dataset.copied;
  };
  document.addEventListener("click", (event) => {
    const closer = event.target.closest("[data-close]");
    if (closer) closer.closest("dialog").close();
    const copier = event.target.closest("[data-copy]");
    if (copier) copy(copier, document.getElementById(copier.dataset.copy));
    const menu = document.querySelector(".menu[open]");
    if (menu && !menu.contains(event.target)) menu.removeAttribute("open");
    unfold(Boolean(event.target.closest("[data-more]")) && !document.querySelector("#nav[data-open]"));
  });

  // On a phone the bar has room for a few pages; the rest is folded behind its last button.
  const unfold = (open) => {
    document.getElementById("nav")?.toggleAttribute("data-open", open);
    document.querySelector("[data-more]")?.setAttribute("aria-expanded", String(open));
  };
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !document.querySelector("#nav[data-open]")) return;
    unfold(false);
    document.querySelector("[data-more]")?.focus();
  });

  // On a phone rows come before filters: a button unfolds them. Pages that renew themselves keep them open.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-fold]"), form = button?.nextElementSibling;
    if (!form) return;
    button.setAttribute("aria-expanded", String(form.toggleAttribute("data-open")));
    if (form.hasAttribute("data-open")) form.querySelector("input:not([type=hidden]), select")?.focus();
  });

  // What a column of a chart says: where the pointer is, or with the arrow keys.
  const pointOut = (plot, at) => {
    const columns = [...plot.querySelectorAll("g")], index = Math.min(Math.max(at, 0), columns.length - 1);
    plot.dataset.at = index;
    for (const one of columns) one.classList.toggle("at", one === columns[index]);
    const place = plot.closest("figure")?.querySelector("[data-value]");
    if (place) place.textContent = columns[index]?.querySelector("title").textContent ?? "";
  };
  document.addEventListener("pointerover", (event) => {
    const column = event.target.closest?.("[data-plot] g");
    if (column) pointOut(column.closest("[data-plot]"), [...column.parentElement.querySelectorAll("g")].indexOf(column));
  });
  document.addEventListener("keydown", (event) => {
    const plot = event.target.closest?.("[data-plot]"), step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!plot || !step) return;
    event.preventDefault();
    pointOut(plot, Number(plot.dataset.at ?? plot.querySelectorAll("g").length) + step);
  });

  // The first page in a zone the server did not know yet: the same page again, in its place.
  addEventListener("load", () => setTimeout(async () => {
    const { zone, ownTime } = document.documentElement.dataset;
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
    const stored = document.cookie.split("; ").includes(`kesin_zone=${own}`);
    if (zone === own || ownTime === undefined || !stored || !window.Idiomorph) return;
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of ["main", "#zone"]) {
      const now = document.querySelector(part), then = page.querySelector(part);
      if (!now || !then) continue;
      Idiomorph.morph(now, then);
      htmx.process(document.querySelector(part));
    }
  }));

  // Numbers that are counted here are grouped like those of the page.
  const grouped = (n) => new Intl.NumberFormat(document.documentElement.lang).format(n);

  // Selected rows stay selected while the table is renewed around them; what is offered fits their states.
  const picked = new Map();
  let every = false; // all that match are meant, shown or not
  const boxes = () => document.querySelectorAll("input[data-pick]");
  const count = () => {
    const table = document.querySelector("[data-matching]");
    const matching = table?.dataset.matching || "";
    const states = every ? (table?.dataset.states || "").split(" ") : [...picked.values()];
    for (const place of document.querySelectorAll("[data-picked]")) place.textContent = grouped(picked.size);
    for (const place of document.querySelectorAll("[data-matching-n]")) place.textContent = matching;
    for (const bar of document.querySelectorAll("[data-bar]")) bar.hidden = picked.size === 0 && !every;
    for (const one of document.querySelectorAll("[data-some]")) one.hidden = every;
    for (const one of document.querySelectorAll("[data-every]")) one.hidden = !every;
    for (const one of document.querySelectorAll("[data-pick-matching]")) one.hidden = every || matching === grouped(picked.size);
    for (const one of document.querySelectorAll("[data-from]")) {
      const from = one.dataset.from.split(" ");
      one.hidden = !states.some((state) => from.includes(state));
    }
    for (const one of document.querySelectorAll("[data-no-action]")) {
      one.hidden = one.parentElement.querySelector("[data-from]:not([hidden])") !== null;
    }
    for (const all of document.querySelectorAll("input[data-pick-all]")) {
      const rows = [...boxes()];
      all.checked = rows.length > 0 && rows.every((one) => one.checked);
      all.indeterminate = !all.checked && rows.some((one) => one.checked);
    }
  };
  const mark = (box) => box.closest("tr")?.setAttribute("aria-selected", String(box.checked));
  const pick = (box, on) => {
    box.checked = on;
    on ? picked.set(box.value, box.dataset.state || "") : picked.delete(box.value);
    mark(box);
  };
  const restore = () => {
    for (const box of boxes()) {
      if (every || picked.has(box.value)) pick(box, true);
      else { box.checked = false; mark(box); }
    }
    count();
  };
  const forget = () => { picked.clear(); every = false; restore(); };
  document.addEventListener("change", (event) => {
    const one = event.target;
    if (one.matches?.("input[data-pick]")) {
      every = false;
      pick(one, one.checked);
      count();
    } else if (one.matches?.("input[data-pick-all]")) {
      every = false;
      for (const box of boxes()) pick(box, one.checked);
      count();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-pick-matching]")) { every = true; restore(); }
    if (event.target.closest("[data-forget]")) forget();
    event.target.closest("[data-dismiss]")?.closest(".alert, [data-stays]")?.remove();
  });
  // The overview: a result stands at the line of the inbox that it is about, and stays when the line goes.
  document.addEventListener("htmx:afterSwap", () => {
    for (const did of document.querySelectorAll("#result [data-at]")) {
      const line = document.getElementById(did.dataset.at), list = document.getElementById("inbox-lines");
      for (const old of document.querySelectorAll("[data-stays]")) if (old !== did && old.dataset.at === did.dataset.at) old.remove();
      line ? line.after(did) : list?.append(did);
      opener = did.querySelector("[data-dismiss]"); // the button that asked goes with its line
    }
  });
  document.addEventListener("kesin:forget", forget);
  document.addEventListener("htmx:pushedIntoHistory", () => {
    forget(); // a selection nobody sees is not acted on
    for (const link of document.querySelectorAll("[data-export]")) link.href = link.dataset.export + location.search;
    for (const field of document.querySelectorAll(".top input[name=back]")) field.value = location.pathname + location.search;
  });
  const numbers = new Map(); // a number that changed tints for a second
  const tint = () => {
    for (const one of document.querySelectorAll("[data-number]")) {
      const before = numbers.get(one.parentElement.id);
      numbers.set(one.parentElement.id, one.textContent);
      one.classList.toggle("changed", before !== undefined && before !== one.textContent);
    }
  };
  // What is above a row may grow or shrink with a renewal: the row that is pointed at or has the focus stays where it
  // is in the window, else the first. Where the window cannot be scrolled by so much, space is kept free for the former.
  let held = null; // [id, top, used]
  const rowTop = (id) => document.getElementById(id)?.getBoundingClientRect().top;
  const hold = () => {
    const [id, top, used] = held, head = document.querySelector(".list-head"), main = document.querySelector("main");
    head.style.paddingTop = main.style.minHeight = "";
    const scroll = () => { scrollBy({ top: rowTop(id) - top, behavior: "instant" }); return rowTop(id) - top; };
    const left = scroll();
    if (!used || !left) return;
    if (left > 0) main.style.minHeight = `${main.offsetHeight + left}px`;
    else head.style.paddingTop = `${-left}px`;
    scroll();
  };
  document.addEventListener("htmx:beforeSwap", (event) => {
    const used = document.querySelector("tr[id^=row-]:is(:hover, :focus-within)"), row = used || document.querySelector("tr[id^=row-]");
    held = row && event.detail.requestConfig?.elt.matches("[data-rows], [data-above]") ? [row.id, rowTop(row.id), Boolean(used)] : null;
  });
  document.addEventListener("htmx:afterSwap", () => {
    if (held && rowTop(held[0]) !== undefined) hold();
    held = null;
    restore();
    tint();
  });
  // Lines that need someone keep their order while they are used: no other button comes under the pointer.
  let order = null;
  document.addEventListener("htmx:beforeSwap", () => {
    order = [...document.querySelectorAll("#inbox-lines:is(:hover, :focus-within) > li")].map((line) => line.id);
  });
  document.addEventListener("htmx:afterSwap", () => {
    const list = order?.length ? document.getElementById("inbox-lines") : null;
    if (!list) return;
    const used = document.activeElement, lines = order.map((id) => id && document.getElementById(id)).filter((line) => line?.parentElement === list);
    let next = list.firstElementChild;
    for (const line of lines) if (line === next) next = next.nextElementSibling; else list.insertBefore(line, next);
    if (list.contains(used) && used !== document.activeElement) used.focus({ preventScroll: true });
  });
  document.addEventListener("DOMContentLoaded", tint);
  document.addEventListener("htmx:configRequest", (event) => {
    const { elt, parameters, triggeringEvent } = event.detail;
    // htmx takes over a new address only after a pause: until then a renewal would undo the filter
    if (triggeringEvent?.type === "renew") event.detail.path = elt.getAttribute("hx-get") || elt.getAttribute("hx-post");
    if (triggeringEvent?.type === "kesin:forget") event.detail.path = event.detail.path.replace(/\?seq=\d+$/, ""); // all of it is old
    if (elt.matches("[data-with-ids]")) {
      if (every) parameters.all = "1";
      else parameters.ids = [...picked.keys()].join(",");
    }
    if (elt.matches("[data-rows]")) { // a renewal moves no row: it names those that are shown, and where they end
      parameters.ids = [...document.querySelectorAll("tr[id^=row-]")].map((row) => row.id.slice(4)).join(",");
      parameters.cursor = document.getElementById("more")?.dataset.cursor || "";
    }
    if (elt.matches("[data-lean]")) { // what is empty need not be in the address
      for (const name of [...new Set(Object.keys(parameters))]) if (parameters[name] === "") delete parameters[name];
    }
  });

  // Live: when the server says that something moved, ask for the parts again, at most every other second.
  // A part that says how soon it grows old (data-most) is asked for that often even if nothing moved.
  // While the stream is cut they are asked for by the clock. A hidden tab watches nothing; it catches up
  // when it is seen again.
  const LEAST_MS = 2000, AGAIN_MS = 3000, MOST_MS = 30000;
  const watch = (place) => {
    const most = () => Number(document.querySelector(place.dataset.renews)?.dataset.most || place.dataset.most || 0) * 1000 || MOST_MS;
    let source = null, last = Date.now(), timer = null;
    const within = (ms) => {
      clearTimeout(timer);
      timer = setTimeout(renew, Math.max(0, ms - (Date.now() - last)));
    };
    const renew = () => {
      last = Date.now();
      within(source?.readyState === EventSource.OPEN ? most() : Math.min(most(), AGAIN_MS));
      if (document.hidden || lost) return;
      for (const part of document.querySelectorAll(`${place.dataset.renews}, #nav`)) htmx.trigger(part, "renew");
    };
    const open = () => {
      source = new EventSource(place.dataset.watch);
      source.addEventListener("open", () => touch(true));
      source.addEventListener("error", () => {
        document.dispatchEvent(new Event("kesin:doubt")); // a stream may be cut while the service is well
        within(AGAIN_MS);
        if (source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
        source = null; // refused: the page, loaded again, says why or leads to the sign-in
        within(LEAST_MS);
        setTimeout(() => { if (!source && !document.hidden) open(); }, AGAIN_MS);
      });
      source.addEventListener("stats", () => within(LEAST_MS)); // the first too: rows may have moved since the page was made
      source.addEventListener("over", () => { // signed out elsewhere: the page, loaded again, leads to the sign-in
        source.close();
        source = null;
        renew();
      });
    };
    document.addEventListener("kesin:found", renew);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { source?.close(); source = null; clearTimeout(timer); }
      else if (!source) open();
    });
    addEventListener("pagehide", () => { source?.close(); source = null; });
    addEventListener("pageshow", (event) => { if (event.persisted && !source) open(); });
    document.addEventListener("htmx:afterSettle", () => { if (!document.hidden && most() <= LEAST_MS) within(LEAST_MS); });
    within(most());
    if (!document.hidden) open();
  };
  document.addEventListener("DOMContentLoaded", () => {
    if (window.Idiomorph) {
      Idiomorph.defaults.ignoreActiveValue = true; // what is being typed stays
      Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) => { // but a focused button says what it does now
        if (old.nodeName === "TH" && old.querySelector("button.sort") && old.closest("[data-sort]")) return false; // sort.js made it
        if (old === document.activeElement && old.matches("button, a, summary") && old.innerHTML !== fresh.innerHTML) old.innerHTML = fresh.innerHTML;
      };
      Idiomorph.defaults.callbacks.beforeNodeRemoved = (node) => !node.matches?.("[data-stays]");
      Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => // and what was unfolded stays open
        !(name === "open" && node.matches("details")) && !(name === "data-open" || (name === "aria-expanded" && node.matches("[data-more], [data-fold]")));
    }
    for (const place of document.querySelectorAll("[data-watch]")) watch(place);
  });

  document.addEventListener("DOMContentLoaded", restore);
})();
