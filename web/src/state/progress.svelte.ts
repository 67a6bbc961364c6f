/** What this reader has answered; kept in this browser only. */
import { empty, parseExport, type Progress } from "../pure/progress";
import { settings } from "./settings.svelte";

const KEY = "cutaway.progress";

function load(): Progress {
  try {
    return parseExport(localStorage.getItem(KEY) ?? "");
  } catch {
    return empty();
  }
}

export const progress = $state(load());

function save(): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(progress));
  } catch {
    // a browser that keeps nothing still works until the page is left
  }
}

const mark = (old: "earned" | "read" | undefined) => (old === "earned" || !settings.reading ? "earned" : "read");

/** `counts`: whether this try is one of those after which a solution is shown. */
export function answered(id: string, right: boolean, counts = true): void {
  if (counts && !(id in progress.right)) progress.tries[id] = (progress.tries[id] ?? 0) + 1;
  if (right) progress.right[id] = mark(progress.right[id]);
  save();
}

export function skipped(level: string): void {
  progress.skipped[level] = mark(progress.skipped[level]);
  save();
}

export function wrote(exercise: string, code: string): void {
  progress.code[exercise] = code;
  save();
}

export function replace(next: Progress): void {
  Object.assign(progress, next);
  save();
}

export const reset = () => replace(empty());
export const exported = () => JSON.stringify(progress, null, 2);
