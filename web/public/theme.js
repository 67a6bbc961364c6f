// Runs before the first paint, so that a chosen theme never flashes the other one.
try {
  const { theme } = JSON.parse(localStorage.getItem("cutaway.settings") ?? "{}");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch {
  // storage may be closed to us or hold something else: the system's choice then stands
}
