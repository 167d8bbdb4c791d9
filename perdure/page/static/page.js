// Says when the stream of updates is cut off, and when it is there again; and the keys of the page.
(() => {
  const shown = (cut) => { const one = document.getElementById("link"); if (one) one.hidden = !cut; };
  document.addEventListener("htmx:sse:error", () => shown(true));
  document.addEventListener("htmx:sse:after:connection", () => shown(false));

  const keys = () => document.getElementById("keys");
  const step = (by) => {
    const stops = [...document.querySelectorAll("[data-stop]")];
    const at = stops.indexOf(document.activeElement?.closest("[data-stop]"));
    const next = stops[at < 0 ? (by > 0 ? 0 : stops.length - 1) : Math.min(Math.max(at + by, 0), stops.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const acts = {
    j: () => step(1),
    k: () => step(-1),
    o: () => (document.activeElement?.closest("[data-stop]") ?? document.querySelector("[data-stop]"))?.click(),
    a: () => document.querySelector('[data-key="a"]')?.focus(),
    r: () => document.querySelector('[data-key="r"]')?.focus(),
    "?": () => keys()?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys()?.open) return;
    if (event.target.closest?.("textarea, select, input:not([type=radio], [type=checkbox], [type=hidden])")) return;
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[event.key]();
  });

  // A rejection says why: the browser says so at the comment before anything is sent.
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#show-keys")) keys()?.showModal();
    const button = event.target.closest?.("button[data-needs]");
    const note = button && document.getElementById(button.dataset.needs);
    if (!note) return;
    note.setCustomValidity(note.value.trim() ? "" : "Say why, and what instead");
    if (!note.reportValidity()) event.preventDefault();
  });
  // What opens to be written in gets the keyboard.
  document.addEventListener("toggle", ({ target }) => {
    if (target.open) document.getElementById(target.dataset.focus)?.focus();
  }, true);
  document.addEventListener("input", (event) => event.target.setCustomValidity?.(""));
  const button = document.getElementById("show-keys");
  if (button) button.hidden = false;
})();
