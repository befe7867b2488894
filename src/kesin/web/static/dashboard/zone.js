// The server writes times in the browser's zone: this tells it which one that is, once the page is there.
"use strict";

addEventListener("load", () => setTimeout(() => { // looking it up takes longer than drawing a small page
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  if (document.cookie.split("; ").includes(`kesin_zone=${zone}`)) return;
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `kesin_zone=${zone}; path=/; max-age=31536000; samesite=lax${secure}`;
}));
