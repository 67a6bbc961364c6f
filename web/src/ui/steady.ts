/**
 * Keeps what the reader works at in its place while something above it grows, such as a lab that is drawn late: else a
 * button may move away under the pointer, between press and release, and the click is lost.
 */
const heights = new WeakMap<Element, number>();
let stood = 0;
addEventListener("scroll", () => (stood = scrollY), { passive: true });

const watcher = new ResizeObserver((entries) => {
  const held = document.activeElement;
  let grown = 0;
  for (const { target } of entries) {
    const tall = (target as HTMLElement).offsetHeight;
    const above = held && !target.contains(held) && target.compareDocumentPosition(held) & Node.DOCUMENT_POSITION_FOLLOWING;
    if (above) grown += tall - (heights.get(target) ?? tall);
    heights.set(target, tall);
  }
  const moved = scrollY - stood; // what the browser has already made up for
  stood = scrollY;
  if (!grown || !held) return;
  const was = held.getBoundingClientRect().top - grown + moved;
  if (was >= 0 && was < innerHeight) scrollBy({ top: grown - moved, behavior: "instant" });
});

export function steady(node: HTMLElement): () => void {
  watcher.observe(node);
  return () => watcher.unobserve(node);
}
