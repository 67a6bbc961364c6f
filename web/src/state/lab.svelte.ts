/** One lab on the page: its state, and the newest result that the server computed from it. */
import type { Result, State } from "../pure/types";
import { ApiError, runLab } from "./api";

const STALE = 250; // ms: an answer that takes longer is given up for the newer state

export class Lab {
  state: State = $state.raw({});
  result: Result | null = $state.raw(null);
  error: ApiError | null = $state.raw(null);
  #flight: { abort: AbortController; since: number } | null = null;
  #waiting = false;

  constructor(
    readonly id: string,
    readonly initial: State,
    start: State,
    readonly changed: (state: State) => void = () => {},
    /** Questions that ask for what this lab would show: it keeps those numbers back until they are answered. */
    readonly asked: readonly string[] = [],
  ) {
    this.state = { ...initial, ...start };
    void this.#send();
  }

  set = (change: State): void => {
    this.state = { ...this.state, ...change };
    this.changed(this.state);
    if (!this.#flight) return void this.#send();
    this.#waiting = true;
    if (performance.now() - this.#flight.since > STALE) this.#flight.abort.abort();
  };

  reset = (): void => this.set(this.initial);

  close(): void {
    this.#waiting = false;
    this.#flight?.abort.abort();
  }

  /** One request at a time; when it ends, the newest state goes, and those between are never sent. */
  async #send(): Promise<void> {
    const abort = new AbortController();
    this.#flight = { abort, since: performance.now() };
    try {
      this.result = await runLab(this.id, this.state, abort.signal);
      this.error = null;
    } catch (error) {
      if (error instanceof ApiError) this.error = error;
      else if (!abort.signal.aborted) throw error;
    } finally {
      this.#flight = null;
      if (this.#waiting) {
        this.#waiting = false;
        void this.#send();
      }
    }
  }
}
