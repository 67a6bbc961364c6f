/**
 * The code editor. It lives in a shadow root: there CodeMirror puts its styles into constructed sheets, which the
 * page's content security policy allows, and not into style elements, which it forbids.
 */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, Prec } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

export interface Editor {
  text(): string;
  replace(text: string): void;
  destroy(): void;
}

interface Options {
  text: string;
  label: string;
  onchange: (text: string) => void;
  onrun: () => void;
}

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword], color: "var(--s4)" },
  { tag: [tags.string], color: "var(--s3)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--s2)" },
  { tag: [tags.comment], color: "var(--ink-3)", fontStyle: "italic" },
  { tag: [tags.function(tags.definition(tags.variableName)), tags.definition(tags.className)], color: "var(--s1)" },
]);

const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "transparent", fontSize: "0.875rem" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--font-code)", lineHeight: "1.6" },
  ".cm-content": { caretColor: "var(--ink)", padding: "0.75rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)", borderLeftWidth: "2px" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--ink-3)", border: "none", paddingLeft: "0.25rem" },
  ".cm-activeLine": { backgroundColor: "color-mix(in oklab, var(--accent) 6%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in oklab, var(--accent) 28%, transparent)",
  },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "1px solid var(--accent)" },
});

export function open(host: HTMLElement, { text, label, onchange, onrun }: Options): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const keys = Prec.highest(
    keymap.of([
      { key: "Mod-Enter", run: () => (onrun(), true) },
      { key: "Ctrl-Enter", run: () => (onrun(), true) },
    ]),
  );
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        keys,
        keymap.of([indentWithTab, ...defaultKeymap, ...historyKeymap]),
        history(),
        lineNumbers(),
        drawSelection(),
        highlightActiveLine(),
        indentOnInput(),
        bracketMatching(),
        indentUnit.of("    "),
        EditorState.tabSize.of(4),
        python(),
        syntaxHighlighting(colours),
        look,
        EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0", spellcheck: "false", autocapitalize: "off" }),
        EditorView.updateListener.of((update) => update.docChanged && onchange(update.state.doc.toString())),
      ],
    }),
  });
  return {
    text: () => view.state.doc.toString(),
    replace: (next) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }),
    destroy: () => view.destroy(),
  };
}
