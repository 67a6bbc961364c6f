/** The width of a box in drawing units, 16 to the reader's own letter size, so that pictures grow with the text. */
export class Frame {
  width = $state(0);

  attach = (node: HTMLElement) => {
    const measure = () => {
      const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
      this.width = Math.max(120, Math.floor(node.clientWidth / unit));
    };
    const watcher = new ResizeObserver(measure);
    watcher.observe(node);
    measure();
    return () => watcher.disconnect();
  };
}
