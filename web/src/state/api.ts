/** The server, as functions. Errors arrive as sentences: where, what, and what to do. */
import type { Course, Exercise, Job, Question, Result, State, Verdict } from "../pure/types";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly where: string,
    what: string,
    readonly fix: string,
  ) {
    super(what);
  }
}

async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`./api/${path}`, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "", "", "");
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body as T;
  const { where = "", what = "", fix = "" } = body?.error ?? {};
  throw new ApiError(response.status, where, what, fix);
}

const post = <T>(path: string, body: unknown, signal?: AbortSignal) =>
  ask<T>(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });

const id = encodeURIComponent;

export interface SkipOutcome {
  cleared: boolean;
  results: ({ id: string } & Verdict)[];
  read: string[];
}

export const course = () => ask<Course>("course");
export const labs = () => ask<Record<string, State>>("labs");
export const exercises = () => ask<Exercise[]>("exercises");
export const runLab = (lab: string, state: State, signal: AbortSignal) =>
  post<{ result: Result }>(`labs/${id(lab)}`, { state }, signal).then((body) => body.result);
export const answer = (question: string, value: string) => post<Verdict>("answers", { question, answer: value });
export const skip = (level: string, seed: number) => post<{ questions: Question[] }>(`skip/${id(level)}`, { seed });
export const checkSkip = (level: string, seed: number, answers: Record<string, string>) =>
  post<SkipOutcome>(`skip/${id(level)}/check`, { seed, answers });
export const runCode = (exercise: string, code: string) => post<{ job: string }>(`exercises/${id(exercise)}/run`, { code });
export const job = (name: string) => ask<Job>(`jobs/${id(name)}`);
export const stopJob = (name: string) => ask<unknown>(`jobs/${id(name)}`, { method: "DELETE" });
export const solution = (exercise: string, attempts: number) =>
  ask<{ solution: string }>(`exercises/${id(exercise)}/solution?attempts=${attempts}`);
