/**
 * Keeps what the reader works at in its place while something above it grows or shrinks, such as a lab that is drawn
 * late: else a button may move away under the pointer, between press and release, and the click is lost.
 *
 * The browser's own anchoring chooses another element to keep, so it is off while something here is held.
 */
let held: Element | null = null;
let top = -1; // where it stands in the window
let stood = 0; // how far the page was scrolled then

const seen = (): boolean => held !== null && held.isConnected && top >= 0 && top < innerHeight;

/** What is fixed to the window, as the header and the contents, keeps its place by itself, however the page scrolls. */
function scrolls(element: Element): boolean {
  for (let each: Element | null = element; each; each = each.parentElement) {
    if (["fixed", "sticky"].includes(getComputedStyle(each).position)) return false;
  }
  return true;
}

function hold(element: EventTarget | null): void {
  held = element instanceof Element && element !== document.body && scrolls(element) ? element : null;
  note();
}

function note(): void {
  top = held?.isConnected ? held.getBoundingClientRect().top : -1;
  stood = scrollY;
  for (const each of [document.documentElement, document.body]) each.style.overflowAnchor = seen() ? "none" : "";
}

export function keepSteady(): void {
  addEventListener("pointerdown", (event) => hold(event.target), true);
  addEventListener("focusin", (event) => hold(event.target));
  addEventListener("focusout", (event) => event.target === held && hold(null));
  addEventListener("scroll", () => {
    top -= scrollY - stood; // the reader's own scrolling, since nothing else scrolls while something is held
    stood = scrollY;
    if (!seen()) note();
  }, { passive: true });
  new ResizeObserver(() => {
    if (held && seen()) scrollBy({ top: held.getBoundingClientRect().top - top, behavior: "instant" });
    note();
  }).observe(document.body);
}
