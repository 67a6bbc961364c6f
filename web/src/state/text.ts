/** Every word of the interface, by key, from the folder of all English texts. A course may bring its own language for any of them. */
import english from "../../../cutaway/lab/content/en/ui.json";

export type Key = keyof typeof english;
let words: Record<string, string> = english;

export function useWords(own: Record<string, string>): void {
  words = { ...english, ...own };
}

/** `{name}` in the text is replaced by the value of that name. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  return words[key].replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? ""));
}
