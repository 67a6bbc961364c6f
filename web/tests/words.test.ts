import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import words from "../../cutaway/lab/content/en/ui.json";

/** Words that stand in the code as a name made from a value: `lab.title.rope`. */
const MADE = /^((lab\.(title|about)|block|depth|emb|gpt|question|stack|stars)\.|kv\.limit_)/;

function sources(folder: string): string {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(svelte|ts)$/.test(name))
    .map((name) => readFileSync(`${folder}/${name}`, "utf8"))
    .join("\n");
}

it("knows no word that the page never says", () => {
  const code = sources("src");
  const unused = Object.keys(words).filter((key) => !code.includes(`"${key}"`) && !MADE.test(key));
  expect(unused).toEqual([]);
});
