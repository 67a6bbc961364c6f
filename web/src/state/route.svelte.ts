/** Where the reader is. */
import { format, parse, type Route } from "../pure/route";

export const route = $state<Route>(parse(location.hash));

export function listen(): () => void {
  const onhash = () => Object.assign(route, parse(location.hash));
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
