import { readdirSync, readFileSync } from "node:fs";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import type { Plugin } from "vite";

/** KaTeX names each font three times; every browser that can run this page reads woff2. */
const woff2Only: Plugin = {
  name: "woff2-only",
  enforce: "pre",
  transform(code, id) {
    if (id.endsWith("katex.min.css")) return code.replace(/,url\([^)]*\.(woff|ttf)\) ?format\("[a-z]*"\)/g, "");
  },
};

/** The licences of the packages that the page carries go with it. */
const licences: Plugin = {
  name: "licences",
  generateBundle() {
    const folders = new Set<string>();
    for (const id of this.getModuleIds()) {
      const found = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id.replace(/^\0/, ""));
      if (found) folders.add(found[1]);
    }
    const texts = [...folders].sort().map((folder) => {
      const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
      return `${folder.split("node_modules/").pop()}\n\n${file ? readFileSync(`${folder}/${file}`, "utf8").trim() : ""}`;
    });
    this.emitFile({ type: "asset", fileName: "LICENCES.txt", source: texts.join("\n\n----\n\n") + "\n" });
  },
};

export default defineConfig({
  base: "./",
  plugins: [woff2Only, licences, svelte()],
  build: {
    outDir: "../cutaway/lab/static",
    emptyOutDir: true,
    assetsInlineLimit: 0, // a data: address would need a weaker content security policy
    modulePreload: { polyfill: false },
    target: ["chrome123", "firefox121", "safari17.5"],
  },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
