// Says when the stream of updates is cut off, and when it is there again.
(() => {
  const shown = (cut) => { const one = document.getElementById("link"); if (one) one.hidden = !cut; };
  document.addEventListener("htmx:sse:error", () => shown(true));
  document.addEventListener("htmx:sse:after:connection", () => shown(false));
})();
