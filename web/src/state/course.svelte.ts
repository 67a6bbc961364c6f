/** The course, fetched once: levels, questions, exercises, and each lab's first state. */
import { cleared, opened, stars, tasks } from "../pure/progress";
import type { Course, Exercise, Level, Question, State } from "../pure/types";
import * as api from "./api";
import { progress } from "./progress.svelte";
import { settings } from "./settings.svelte";
import { useWords } from "./text";

interface Loaded {
  course: Course;
  labs: Record<string, State>;
  exercises: Record<string, Exercise>;
  /** Why there are no exercises, where the server will not run code. */
  closed: string;
}

let current: Loaded;

export async function load(): Promise<void> {
  const [course, labs, listed] = await Promise.all([
    api.course(),
    api.labs(),
    api.exercises().catch((error: api.ApiError) => error),
  ]);
  const list = Array.isArray(listed) ? listed : [];
  useWords(course.ui);
  current = {
    course,
    labs,
    exercises: Object.fromEntries(list.map((exercise) => [exercise.id, exercise])),
    closed: Array.isArray(listed) ? "" : listed.message,
  };
}

export const levels = (): Level[] => current.course.levels;
export const level = (id: string): Level | undefined => levels().find((one) => one.id === id);
export const question = (id: string): Question | undefined => current.course.questions[id];
export const exercise = (id: string): Exercise | undefined => current.exercises[id];
export const whyClosed = (): string => current.closed;
export const glossary = () => current.course.glossary;
export const shortcuts = () => current.course.shortcuts;
export const initial = (lab: string): State => current.labs[lab];
export const labIds = (): string[] => Object.keys(current.labs);

const scored = (id: string) => question(id)?.kind !== "open";
export const sections = (one: Level) => opened(one, progress, settings.reading);
export const isCleared = (one: Level) => cleared(one, progress, scored);
export const starsOf = (one: Level) => stars(one, progress, scored);
export const tasksOf = (one: Level) => tasks(one, scored);
export const doneOf = (one: Level) => tasksOf(one).filter((id) => id in progress.right).length;

export const isSkipped = (id: string): boolean => id in progress.skipped;

/** The scored questions of one section. */
export function askedIn(id: string, section: string): string[] {
  const one = level(id)?.sections.find((found) => found.id === section);
  return (one?.blocks ?? []).flatMap((block) => (block.type === "question" && scored(block.id) ? [block.id] : []));
}

/** The first place where a lab stands in the course. */
export function placeOf(lab: string): { level: Level; section: string; title: string } | null {
  for (const one of levels())
    for (const section of one.sections)
      for (const block of section.blocks) if (block.type === "lab" && block.lab === lab) return { level: one, section: section.id, title: block.title };
  return null;
}
