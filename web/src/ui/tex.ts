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

/** Sets every `<span class="tex">` inside `node`, and lets code that may scroll be reached by keyboard. */
export function finish(node: Element): void {
  for (const code of node.querySelectorAll("pre")) code.tabIndex = 0;
  const spans = [...node.querySelectorAll<HTMLElement>("span.tex")];
  if (!spans.length) return;
  void renderer().then((render) =>
    spans.forEach((span) => {
      render(span.textContent ?? "", span, false);
      keepTogether(span);
    }),
  );
}

/** A browser may break the line between a formula and the full stop behind it. Behind a short one it must not. */
function keepTogether(span: HTMLElement): void {
  const next = span.nextSibling;
  const mark = next instanceof Text ? /^[.,;:!?)]+/.exec(next.data)?.[0] : undefined;
  if (!mark || (span.querySelector(".katex-html")?.textContent ?? "").length > 24) return;
  span.append(mark);
  span.classList.add("whole");
  (next as Text).data = (next as Text).data.slice(mark.length);
}
