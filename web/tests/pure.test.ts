import { describe, expect, it } from "vitest";
import { count, fixed, shape, short, size, vector } from "../src/pure/format";
import { cleared, empty, opened, parseExport, stars, tasks } from "../src/pure/progress";
import { format, parse, readState, writeState } from "../src/pure/route";
import type { Level } from "../src/pure/types";

describe("numbers", () => {
  it("never shows minus zero", () => {
    expect(fixed(-0.001)).toBe("0.00");
    expect(fixed(-0, 4)).toBe("0.0000");
    expect(fixed(-0.006)).toBe("-0.01");
    expect(vector([0.1411, -0.98999, -1e-9])).toBe("[0.14, -0.99, 0.00]");
    expect(short(-0.0001)).toBe("0");
  });
  it("says what is not finite", () => {
    expect([fixed(Infinity), fixed(-Infinity), fixed(NaN)]).toEqual(["∞", "-∞", "not a number"]);
  });
  it("writes sizes so that they can be read", () => {
    expect([0, 1.8e-8, 0.0123, 2.828, 35.04, 9031, 4.41e9].map(size)).toEqual(["0", "1.8e-8", "0.01", "2.83", "35.0", "9031", "4.4e9"]);
  });
  it("writes shapes and counts", () => {
    expect([shape([1, 4, 8]), shape([3])]).toEqual(["(1, 4, 8)", "(3,)"]);
    expect(count(1234567)).toBe("1,234,567");
  });
});

describe("addresses", () => {
  const initial = { m: 0, theta: 0.5, masked: true, rule: "f", x: [1, 2], follow: null };
  it("go there and back", () => {
    const route = { path: ["modern", "rope"], query: { lab: "rope", x: "[1,2]" } };
    expect(parse(format(route))).toEqual(route);
    expect(parse("")).toEqual({ path: [], query: {} });
    expect(parse("#/%E0%A4%A/x").path).toEqual(["%E0%A4%A", "x"]);
  });
  it("carry only what differs", () => {
    expect(writeState({ ...initial, m: 2, x: [1, 3], follow: "cat" }, initial)).toEqual({ m: "2", x: "[1,3]", follow: "cat" });
    expect(writeState(initial, initial)).toEqual({});
  });
  it("read back every state, and leave out what the lab does not know or could not read", () => {
    const state = { ...initial, m: 2, masked: false, rule: "res", x: [1, 3], follow: "cat" };
    expect({ ...initial, ...readState(writeState(state, initial), initial) }).toEqual(state);
    expect(readState({ lab: "rope", evil: "1", m: "two", masked: "3", x: "{}", theta: "[1]" }, initial)).toEqual({});
  });
});

const level = {
  id: "one",
  sections: [
    { id: "a", title: "A", blocks: [{ type: "question", id: "1" }, { type: "lock", id: "l1", after: ["1"] }, { type: "fold", kind: "deeper", title: "", blocks: [{ type: "question", id: "2" }] }, { type: "lock", id: "l2", after: ["1", "2"] }] },
    { id: "b", title: "B", blocks: [{ type: "exercise", id: "e" }, { type: "question", id: "open" }] },
  ],
} as unknown as Level;
const scored = (id: string) => id !== "open";

describe("locks and stars", () => {
  it("lists what is to be answered, folds included, open questions left out", () => {
    expect(tasks(level, scored)).toEqual(["1", "2", "e"]);
  });
  it("opens as far as the first closed lock", () => {
    const progress = empty();
    const shown = () => opened(level, progress, false).map((one) => [one.reached, one.blocks.length, one.lock?.id ?? null]);
    expect(shown()).toEqual([[true, 1, "l1"], [false, 0, null]]);
    progress.right["2"] = "earned";
    expect(shown()).toEqual([[true, 1, "l1"], [false, 0, null]]);
    progress.right["1"] = "read";
    expect(shown()).toEqual([[true, 4, null], [true, 2, null]]);
  });
  it("opens everything when reading, and after a passed test", () => {
    expect(opened(level, empty(), true).every((one) => one.reached && !one.lock)).toBe(true);
    expect(opened(level, { ...empty(), skipped: { one: "earned" } }, false).every((one) => one.reached)).toBe(true);
  });
  it("gives each star for its own deed, none for reading", () => {
    const earned = (progress: ReturnType<typeof empty>) => stars(level, progress, scored).filter((one) => one.earned).map((one) => one.star);
    const all = { ...empty(), right: { "1": "earned", "2": "earned", e: "earned" } as const, tries: { "1": 1, "2": 1 } };
    expect(earned(empty())).toEqual([]);
    expect(earned(all)).toEqual(["questions", "first_try", "exercises"]);
    expect(earned({ ...all, tries: { "1": 2, "2": 1 } })).toEqual(["questions", "exercises"]);
    expect(earned({ ...all, right: { ...all.right, "2": "read" } })).toEqual(["exercises"]);
    expect(cleared(level, all, scored)).toBe(true);
    expect(cleared(level, { ...all, right: { "1": "earned" } }, scored)).toBe(false);
  });
});

describe("saved progress", () => {
  it("comes back as it was", () => {
    const progress = { ...empty(), right: { "1": "earned" as const }, tries: { "1": 3 }, code: { e: "x = 1" } };
    expect(parseExport(JSON.stringify(progress))).toEqual(progress);
  });
  it("is refused when it is anything else", () => {
    for (const text of ["", "null", "[]", "{}", '{"version":2}', JSON.stringify({ ...empty(), right: { a: "stolen" } }), JSON.stringify({ ...empty(), tries: { a: 0.5 } }), JSON.stringify({ ...empty(), code: { a: 1 } })])
      expect(() => parseExport(text)).toThrow();
  });
});
