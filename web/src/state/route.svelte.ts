/** Where the reader is. */
import { format, parse, type Route } from "../pure/route";

export const route = $state<Route>(parse(location.hash));

/** The address that was last followed, and how many were: a lab begins anew from each one that is meant for it. */
export const visit = $state({ count: 0, section: route.path[1], lab: route.query.lab });

export function listen(): () => void {
  const onhash = () => {
    Object.assign(route, parse(location.hash));
    Object.assign(visit, { count: visit.count + 1, section: route.path[1], lab: route.query.lab });
  };
  addEventListener("hashchange", onhash);
  return () => removeEventListener("hashchange", onhash);
}

export function go(...path: string[]): void {
  location.hash = format({ path, query: {} });
}

/** Changes the address without a new step in the history and without moving the page. */
export function rewrite(path: string[], query: Record<string, string>): void {
  history.replaceState(history.state, "", format({ path, query }));
  route.query = query;
}
