/** What opens, what is cleared, which stars are earned: pure functions of a level and of what was answered. */
import type { Block, Level, Section } from "./types";

/** "earned" counts for stars; "read" was answered in reading mode and only opens locks. */
export type Mark = "earned" | "read";

export interface Progress {
  version: 1;
  right: Record<string, Mark>;
  tries: Record<string, number>;
  skipped: Record<string, Mark>;
  code: Record<string, string>;
}

export interface OpenSection extends Section {
  /** The lock that ends what is shown of this section, if any. */
  lock: Extract<Block, { type: "lock" }> | null;
  /** False where an earlier lock keeps the whole section closed. */
  reached: boolean;
}

export const empty = (): Progress => ({ version: 1, right: {}, tries: {}, skipped: {}, code: {} });

function* walk(blocks: Block[]): Generator<Block> {
  for (const block of blocks) {
    yield block;
    if (block.type === "fold") yield* walk(block.blocks);
  }
}

const blocksOf = (level: Level) => level.sections.flatMap((section) => [...walk(section.blocks)]);
const isExercise = (level: Level, id: string) => blocksOf(level).some((block) => block.type === "exercise" && block.id === id);

/** Ids of a level's questions and exercises, in order; open questions are left out by `scored`. */
export function tasks(level: Level, scored: (id: string) => boolean): string[] {
  return blocksOf(level).flatMap((block) =>
    block.type === "exercise" || (block.type === "question" && scored(block.id)) ? [block.id] : [],
  );
}

/** The sections as far as the first closed lock lets one read. */
export function opened(level: Level, progress: Progress, everything: boolean): OpenSection[] {
  let closed = false;
  const all = everything || level.id in progress.skipped;
  return level.sections.map((section) => {
    if (closed) return { ...section, blocks: [], lock: null, reached: false };
    const at = all ? -1 : section.blocks.findIndex((b) => b.type === "lock" && !b.after.every((id) => id in progress.right));
    if (at < 0) return { ...section, lock: null, reached: true };
    closed = true;
    return { ...section, blocks: section.blocks.slice(0, at), lock: section.blocks[at] as OpenSection["lock"], reached: true };
  });
}

export function cleared(level: Level, progress: Progress, scored: (id: string) => boolean): boolean {
  return level.id in progress.skipped || tasks(level, scored).every((id) => id in progress.right);
}

export type Star = "questions" | "first_try" | "exercises";

/** Which stars a level offers, and which are earned: never by an answer given in reading mode or by the skip test. */
export function stars(level: Level, progress: Progress, scored: (id: string) => boolean): { star: Star; earned: boolean }[] {
  const ids = tasks(level, scored);
  const exercises = ids.filter((id) => isExercise(level, id));
  const questions = ids.filter((id) => !exercises.includes(id));
  const all = (some: string[]) => some.length > 0 && some.every((id) => progress.right[id] === "earned");
  const list: { star: Star; earned: boolean }[] = [
    { star: "questions", earned: all(questions) },
    { star: "first_try", earned: all(questions) && questions.every((id) => progress.tries[id] === 1) },
  ];
  return exercises.length ? [...list, { star: "exercises", earned: all(exercises) }] : list;
}

/** Accepts only what an export of ours could hold; throws a sentence for the reader otherwise. */
export function parseExport(text: string): Progress {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error("json");
  }
  const value = data as Progress;
  const marks = (record: unknown) => strings(record, (v) => v === "earned" || v === "read");
  if (!isRecord(data) || value.version !== 1) throw new Error("version");
  if (!marks(value.right) || !marks(value.skipped)) throw new Error("shape");
  if (!strings(value.tries, (v) => Number.isInteger(v)) || !strings(value.code, (v) => typeof v === "string")) throw new Error("shape");
  return { version: 1, right: value.right, tries: value.tries, skipped: value.skipped, code: value.code };
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
const strings = (record: unknown, ok: (value: unknown) => boolean) => isRecord(record) && Object.values(record).every(ok);
