/** A reload ends where it began: at the same heading, as far from the top of the window. */
import { keep, kept } from "./kept";

interface Place {
  address: string;
  heading: number;
  top: number;
}

const address = () => location.hash.split("?")[0];
const headings = () => [document.documentElement, ...document.querySelectorAll("main h2")];
const topOf = (node: Element) => node.getBoundingClientRect().top;

export function leave(): void {
  const all = headings();
  const heading = Math.max(0, all.findLastIndex((one) => topOf(one) < innerHeight / 2));
  keep("place", { address: address(), heading, top: topOf(all[heading]) } satisfies Place);
}

/** Once the page stands. What is drawn above later moves nothing: the browser holds what is in its window. */
export function goBack(): void {
  const [entry] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  const place = kept<Place | null>("place", null);
  const heading = place?.address === address() ? headings()[place.heading] : undefined;
  if (entry?.type === "reload" && place && heading) scrollBy({ top: topOf(heading) - place.top, behavior: "instant" });
}
