/** What the server sends. The page computes nothing about models: it lays these out. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type State = Record<string, any>;
export type Result = Record<string, any> & { text: string; before?: string; numbers: Record<string, string> };

export type Block =
  | { type: "html"; html: string }
  | { type: "example"; html: string }
  | { type: "formula"; tex: string; label?: string }
  | { type: "table"; caption?: string; head: string[]; rows: string[][] }
  | { type: "lab"; lab: string; title: string; caption?: string; state?: State }
  | { type: "question"; id: string }
  | { type: "exercise"; id: string }
  | { type: "lock"; id: string; after: string[] }
  | { type: "fold"; kind: "stuck" | "deeper"; title: string; blocks: Block[] }
  | { type: "model"; part: string };

export interface Section {
  id: string;
  title: string;
  blocks: Block[];
}

export interface Level {
  id: string;
  number: string;
  title: string;
  lead: string;
  goals: string[];
  sections: Section[];
  recap: string[];
  keep: string[];
  mistakes: string[];
  skip_test: { questions: number };
  stars: number;
  side_trips: string[];
  prev: string | null;
  next: string | null;
  demo: string;
}

export interface Question {
  id: string;
  /** What a reader sees: 4.6 is the sixth of chapter 4. A skip test's questions have none. */
  label?: string;
  kind: "choice" | "number" | "shape" | "open";
  prompt_html: string;
  options: { id: string; html: string }[];
}

export interface Term {
  term: string;
  id: string;
  html: string;
}

export interface Course {
  levels: Level[];
  questions: Record<string, Question>;
  glossary: Term[];
  ui: Record<string, string>;
  shortcuts: { keys: string; text: string }[];
}

export interface Verdict {
  right: boolean;
  reason_html: string;
  value?: string;
}

export interface Exercise {
  id: string;
  title: string;
  prompt_html: string;
  starter: string;
  hints: string[];
  signature: string;
}

export interface Job {
  state: string;
  passed: boolean;
  messages: string[];
  stdout: string;
}
