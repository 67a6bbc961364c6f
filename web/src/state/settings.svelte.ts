/** How this reader likes the page; kept in this browser only. */
const KEY = "cutaway.settings";

interface Settings {
  theme: "system" | "light" | "dark";
  reading: boolean;
  keys: boolean;
}

function load(): Settings {
  const start: Settings = { theme: "system", reading: false, keys: true };
  try {
    return { ...start, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return start;
  }
}

export const settings = $state(load());

export function set(change: Partial<Settings>): void {
  Object.assign(settings, change);
  const { theme } = settings;
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // a browser that keeps nothing still shows the page
  }
}

export function isDark(): boolean {
  return settings.theme === "dark" || (settings.theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
}
