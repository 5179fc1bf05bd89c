// What a view asks of the origin: only the newest question counts, and what goes wrong is said in its place.

import { h } from "./dom";

export class Asking {
  readonly message = h("p", { class: "error", role: "alert" });
  private question = "";
  private control = new AbortController(); // of what is under way

  constructor(
    private readonly view: HTMLElement,
    private readonly forget: () => void = () => undefined,
  ) {}

  /** Whether this question was the last one to be asked, and is answered or under way. */
  isAsked(question: string): boolean {
    return question === this.question;
  }

  /** Ask; the answer is used, unless something else has been asked meanwhile. An error takes its place. */
  async ask<T>(question: string, answer: (signal: AbortSignal) => Promise<T>, use: (found: T) => void | Promise<void>): Promise<void> {
    const { signal } = this.begin(question);
    this.message.textContent = ""; // it was about another question
    this.view.classList.add("pending");
    try {
      const found = await answer(signal);
      if (signal.aborted) return;
      this.view.classList.remove("empty");
      await use(found);
    } catch (error) {
      if (!signal.aborted) this.fail((error as Error).message);
    } finally {
      if (!signal.aborted) this.view.classList.remove("pending");
    }
  }

  /** Wait for what is to be asked about: what is shown, or under way, belongs to something else. */
  wait(): void {
    this.begin("");
    this.message.textContent = "";
    this.view.classList.add("pending");
  }

  /** Whether what is shown is of something else than what is asked about. */
  get isWaiting(): boolean {
    return this.view.classList.contains("pending");
  }

  /** Say why there is nothing to see; what is under way is no longer wanted, and what was there is forgotten. */
  fail(message: string): void {
    this.begin("");
    this.message.textContent = message;
    this.view.classList.remove("pending");
    this.view.classList.add("empty");
    this.forget();
  }

  private begin(question: string): AbortController {
    this.control.abort();
    this.question = question;
    return (this.control = new AbortController());
  }
}
