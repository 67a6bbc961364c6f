/** Keyboard shortcuts of the whole page. Single letters can be switched off, and never act while one is typing. */
import { go } from "./route.svelte";
import { set, settings } from "./settings.svelte";

export interface Actions {
  help: () => void;
  contents: () => void;
}

export function shortcutKeys(event: KeyboardEvent, { help, contents }: Actions): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !settings.keys || typing(event)) return;
  const act: Record<string, () => void> = {
    "?": help,
    n: () => section(1),
    p: () => section(-1),
    g: () => go("glossary"),
    c: contents,
    r: () => set({ reading: !settings.reading }),
  };
  const run = act[event.key];
  if (!run) return;
  event.preventDefault();
  run();
}

function typing(event: KeyboardEvent): boolean {
  const target = event.composedPath()[0];
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || target.matches("textarea, select, input:not([type=radio], [type=checkbox], [type=range])");
}

/** Moves to the next or previous heading of a section. */
function section(way: 1 | -1): void {
  const heads = [...document.querySelectorAll<HTMLElement>("main section[id] > h2")];
  const tops = heads.map((head) => head.getBoundingClientRect().top);
  const index = way > 0 ? tops.findIndex((top) => top > 120) : tops.findLastIndex((top) => top < 40);
  const head = heads[index];
  head?.scrollIntoView();
  head?.focus({ preventScroll: true });
}
