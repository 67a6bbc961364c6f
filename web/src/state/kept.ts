/** What is unfinished: it outlives a reload of this tab, and ends with the tab. */
export function keep(key: string, value: unknown): void {
  try {
    sessionStorage.setItem(`cutaway.${key}`, JSON.stringify(value));
  } catch {
    // a browser that keeps nothing loses it at the next reload
  }
}

export function kept<T>(key: string, otherwise: T): T {
  try {
    const text = sessionStorage.getItem(`cutaway.${key}`);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise;
  }
}
