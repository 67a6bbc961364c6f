/** Formulas. KaTeX, its styles and its fonts load when the first one is met. */
type Render = (tex: string, target: HTMLElement, block: boolean) => void;
let loading: Promise<Render> | null = null;

export function renderer(): Promise<Render> {
  loading ??= Promise.all([import("katex"), import("katex/dist/katex.min.css")]).then(
    ([{ default: katex }]) =>
      (tex, target, block) =>
        katex.render(tex, target, { displayMode: block, throwOnError: false, strict: false, trust: false }),
  );
  return loading;
}

/** Sets every `<span class="tex">` inside `node`. */
export function setFormulas(node: Element): void {
  const spans = [...node.querySelectorAll<HTMLElement>("span.tex")];
  if (spans.length) void renderer().then((render) => spans.forEach((span) => render(span.textContent ?? "", span, false)));
}
