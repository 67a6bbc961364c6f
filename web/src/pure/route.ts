/** Addresses: `#/level/section?lab=rope&m=2`. A lab's state is written as what differs from its default. */
import type { State } from "./types";

export interface Route {
  path: string[];
  query: Record<string, string>;
}

export function parse(hash: string): Route {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

export function format({ path, query }: Route): string {
  const search = Object.keys(query).length ? `?${new URLSearchParams(query)}` : "";
  return `#/${path.map(encodeURIComponent).join("/")}${search}`;
}

export function writeState(state: State, initial: State): Record<string, string> {
  const changed: Record<string, string> = {};
  for (const [key, value] of Object.entries(state)) {
    if (JSON.stringify(value) !== JSON.stringify(initial[key])) changed[key] = write(value);
  }
  return changed;
}

/** Only keys that the lab knows, read as the kind of value its default has; anything unreadable is left out. */
export function readState(query: Record<string, string>, initial: State): State {
  const state: State = {};
  for (const [key, text] of Object.entries(query)) {
    if (!(key in initial)) continue;
    const value = read(text, initial[key]);
    if (value !== undefined) state[key] = value;
  }
  return state;
}

function write(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function read(text: string, like: unknown): unknown {
  if (typeof like === "string") return text;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return like === null ? text : undefined; // a name where nothing was chosen yet
  }
  if (like === null) return value;
  return typeof value === typeof like && Array.isArray(value) === Array.isArray(like) ? value : undefined;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
