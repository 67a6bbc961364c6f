/** Numbers as text. The rounding is part of what a lab shows, so it lives in one place. */

/** Fixed decimals, never "-0.00". */
export function fixed(x: number, digits = 2): string {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "not a number" : x > 0 ? "∞" : "-∞";
  const text = x.toFixed(digits);
  return /^-0(\.0*)?$/.test(text) ? text.slice(1) : text;
}

/** A size: plain while it is readable, else like 1.8e-8. */
export function size(x: number): string {
  const a = Math.abs(x);
  if (x === 0) return "0";
  if (a < 1e-3 || a >= 1e5) return x.toExponential(1).replace("e+", "e");
  return a >= 1000 ? String(Math.round(x)) : fixed(x, a >= 100 ? 0 : a >= 10 ? 1 : 2);
}

/** As few decimals as the number needs, at most `digits`. */
export function short(x: number, digits = 2): string {
  return String(Number(fixed(x, digits)));
}

export function vector(xs: readonly number[], digits = 2): string {
  return `[${xs.map((x) => fixed(x, digits)).join(", ")}]`;
}

export function shortVector(xs: readonly number[], digits = 2): string {
  return `[${xs.map((x) => short(x, digits)).join(", ")}]`;
}

export function shape(dims: readonly number[]): string {
  return dims.length === 1 ? `(${dims[0]},)` : `(${dims.join(", ")})`;
}

/** 12345 as "12,345", as the labs write their counts. */
export function count(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ",");
}
