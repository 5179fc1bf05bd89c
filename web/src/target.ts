// One model's translations: words to hover, to step through and to change.

import type { App, Line } from "./app";
import { openChoice } from "./change";
import { h, isModified, redrawn, say } from "./dom";
import { actionButton, copy } from "./saving";
import type { Marked } from "./source";
import { isUnspaced, wordAlignment, wordsOf, type Word } from "./tokens";
import { NO_MODEL } from "./origin";
import type { Candidate, Model } from "./types";

interface Row {
  item: HTMLElement;
  words: Word[];
}

export class TargetText {
  readonly element: HTMLElement;
  private readonly list = h("ol", { class: "sheet lines" });
  private readonly below = h("div", { class: "below" });
  private readonly rows = new Map<Line, Row>();
  private current: Line | null = null; // whose item is marked
  private focusAfter: { line: Line; word: number } | null = null;

  constructor(
    private readonly app: App,
    readonly model: Model,
    private readonly marked: (line: Line, marks: Marked[]) => void,
  ) {
    const { name, family, parameters } = model;
    this.element = h("section", { class: "pane target", "aria-label": `Translation by ${name}` },
      h("header", {},
        h("h2", { title: name }, name),
        h("span", { class: "hint", title: `${family}, ${parameters.toLocaleString("en")} parameters` },
          `${(parameters / 1e6).toFixed(1)}\u00a0M `, h("span", {}, family)),
        actionButton("Copy", "Copy the translation", () => this.copyAll()),
      ),
      this.list, this.below);
    this.list.addEventListener("pointerover", (event) => this.hover(event.target as Element));
    this.list.addEventListener("pointerleave", () => this.marked(app.line, []));
    this.list.addEventListener("focusin", (event) => this.hover(event.target as Element));
    this.list.addEventListener("focusout", () => this.marked(app.line, []));
    this.list.addEventListener("click", (event) => this.clicked(event.target as Element));
    this.list.addEventListener("keydown", (event) => this.pressed(event));
    this.render();
  }

  render(): void {
    const focused = [...this.rows].find(([, { item }]) => item.contains(document.activeElement))?.[0];
    const word = focused && this.focusedWord(focused);
    this.rows.clear();
    let number = 0;
    const space = isUnspaced(this.model.target_language) ? "" : " ";
    this.list.replaceChildren(...this.app.paragraphs.map((group) =>
      h("li", {}, ...group.flatMap((line, place) => [place ? space : null, this.createItem(line, number++)]))));
    this.renderPlace();
    if (focused) this.focusWord(focused, word!);
  }

  /** The word of a line that has the focus, 0 if it is the line itself; null: it is elsewhere. */
  private focusedWord(line: Line): number | null {
    const focused = document.activeElement as HTMLElement | null;
    return this.rows.get(line)!.item.contains(focused) ? Number(focused!.dataset.word ?? 0) : null;
  }

  renderLine(line: Line): void {
    const row = this.rows.get(line);
    if (!row) return;
    const word = this.focusedWord(line);
    const item = this.createItem(line, Number(row.item.dataset.line));
    row.item.replaceWith(item);
    if (line === this.app.line) this.renderPlace();
    if (word !== null) this.focusWord(line, word);
    if (this.focusAfter?.line !== line || this.app.rendering(line, this.model).pending) return;
    if (document.activeElement === document.body) this.focusWord(line, this.focusAfter.word); // the focus has not gone elsewhere
    this.focusAfter = null;
  }

  /** Show which line is looked at: its words can be reached by keys, and its other translations stand below. */
  renderPlace(): void {
    if (this.current) this.markCurrent(this.current, false);
    if (this.current !== this.app.line) this.markFor(this.app.line, null);
    this.current = this.app.line;
    this.markCurrent(this.current, true);
    const lost = redrawn(this.below, ...this.belowOf(this.app.line));
    if (lost) this.focusWord(this.app.line, 0);
  }

  private markCurrent(line: Line, current: boolean): void {
    const item = this.rows.get(line)?.item;
    item?.classList.toggle("current", current && this.app.lines.length > 1);
    item?.querySelectorAll("[data-word]").forEach((span, index) => {
      if (current) span.setAttribute("role", "button");
      else span.removeAttribute("role");
      if (current) span.setAttribute("tabindex", index === 0 ? "0" : "-1");
      else span.removeAttribute("tabindex");
    });
  }

  /** Mark the words that a source word is aligned with. */
  markFor(line: Line, source: Word | null): void {
    for (const { item } of this.rows.values())
      item.querySelectorAll<HTMLElement>("[data-weight]").forEach((span) => delete span.dataset.weight);
    const row = this.rows.get(line);
    if (!source || !row) return;
    const { weights, sources } = this.alignment(line, row.words);
    const columns = sources.flatMap((word, s) => (word.start < source.end && source.start < word.end ? [s] : []));
    row.item.querySelectorAll<HTMLElement>("[data-word]").forEach((span, t) => {
      const weight = Math.max(0, ...columns.map((s) => weights[t]?.[s] ?? 0));
      if (weight < 0.1) return;
      span.dataset.weight = weight.toFixed(2);
      span.style.setProperty("--weight", weight.toFixed(3));
    });
  }

  private createItem(line: Line, number: number): HTMLElement {
    const { translation, chosen, error, pending, prefix } = this.app.rendering(line, this.model);
    const candidate = translation?.candidates[chosen];
    const words = candidate ? wordsOf(candidate.text, candidate.tokens, this.model.target_language) : [];
    const item = h("span", { "data-line": number, class: pending ? "pending" : null, lang: this.model.target_language });
    // What went wrong with many lines is said once.
    const before = number ? this.app.rendering(this.app.lines[number - 1], this.model).error : null;
    if (error) item.append(h("span", { class: "error", role: error === before ? null : "alert" }, error));
    else if (candidate) item.append(...spansOf(candidate.text, words));
    else item.append(pending ? h("span", { class: "hint" }, "…") : "\u200b");
    item.querySelectorAll("[data-word]").forEach((span, index) =>
      span.classList.toggle("fixed", words[index].end <= prefix.length && candidate!.text.startsWith(prefix)));
    if (candidate && !candidate.complete) item.append(h("span", { class: "hint" }, " (ended at the greatest length)"));
    this.rows.set(line, { item, words });
    return item;
  }

  private belowOf(line: Line): HTMLElement[] {
    const { translation, chosen, past, prefix } = this.app.rendering(line, this.model);
    if (!translation?.candidates.length) return [];
    const option = ({ text, score }: Candidate, index: number): HTMLElement =>
      h("label", { class: "candidate" },
        h("input", {
          type: "radio", name: `candidate-${this.model.name}`, checked: index === chosen, "data-part": index,
          onchange: () => this.choose(line, index),
        }),
        h("span", { lang: this.model.target_language }, text || "(empty)"), h("span", { class: "number" }, score.toFixed(2)));
    const texts = translation.candidates.map(({ text }) => text); // pieces may differ where texts do not
    const options = translation.candidates.map(option).filter((_, index) => texts.indexOf(texts[index]) === index);
    const list = h("fieldset", {}, h("legend", {}, "Alternatives, best first, with their scores"), ...options);
    if (!past.length) return [list];
    const back = h("button", { type: "button", "data-part": "back", onclick: () => this.undo(line) }, "Undo the change");
    const free = h("button", { type: "button", "data-part": "free", onclick: () => void this.app.retranslate(line, this.model, "", []) }, "Translate freely");
    return [h("div", { class: "row" }, h("span", { class: "hint" }, `Begins with “${prefix}”`), back, prefix ? free : null), list];
  }

  private choose(line: Line, index: number): void {
    this.app.rendering(line, this.model).chosen = index;
    this.app.emit("line", line, this.model);
  }

  private undo(line: Line): void {
    const { past } = this.app.rendering(line, this.model);
    if (past.length) void this.app.retranslate(line, this.model, past.at(-1)!, past.slice(0, -1));
  }

  private lineOf(element: Element): Line | null {
    const item = element.closest<HTMLElement>("[data-line]");
    return item ? this.app.lines[Number(item.dataset.line)] : null;
  }

  private hover(element: Element): void {
    const span = element.closest<HTMLElement>("[data-word]");
    const line = this.lineOf(element);
    if (!span || !line) return this.marked(this.app.line, []);
    const { weights, sources } = this.alignment(line, this.rows.get(line)!.words);
    const row = weights[Number(span.dataset.word)] ?? [];
    this.marked(line, sources.map(({ start, end }, s) => ({ start, end, weight: row[s] ?? 0 })));
  }

  private alignment(line: Line, words: readonly Word[]): { weights: number[][]; sources: Word[] } {
    const { translation, chosen } = this.app.rendering(line, this.model);
    const sources = translation ? wordsOf(line.source, translation.source_tokens, this.model.source_language) : [];
    const alignment = translation?.candidates[chosen]?.alignment;
    return { sources, weights: alignment ? wordAlignment(alignment, sources, words) : [] };
  }

  private clicked(element: Element): void {
    const line = this.lineOf(element);
    if (!line) return;
    if (line !== this.app.line) this.app.look({ current: this.app.lines.indexOf(line) });
    const word = element.closest<HTMLElement>("[data-word]")?.dataset.word;
    if (word !== undefined) this.change(line, Number(word));
  }

  private pressed(event: KeyboardEvent): void {
    const span = (event.target as Element).closest<HTMLElement>("[data-word]");
    const line = this.lineOf(event.target as Element);
    if (!line) return;
    const isUndo = span && event.key === "z" && (event.ctrlKey || event.metaKey) && !event.altKey;
    if (isUndo) {
      event.preventDefault();
      return this.undo(line);
    }
    if (isModified(event)) return;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      return this.toLine(event.key === "ArrowUp" ? -1 : 1);
    }
    if (!span) return;
    const word = Number(span.dataset.word);
    const last = this.rows.get(line)!.words.length - 1;
    const steps: Record<string, number> = { ArrowLeft: word - 1, ArrowRight: word + 1, Home: 0, End: last };
    if (event.key in steps) this.focusWord(line, Math.max(0, Math.min(last, steps[event.key])));
    else if (event.key === "Enter" || event.key === " ") this.change(line, word);
    else if (/^\p{L}$/u.test(event.key)) this.change(line, word, event.key);
    else return;
    event.preventDefault();
  }

  private toLine(step: number): void {
    this.app.look({ current: this.app.current + step });
    this.focusWord(this.app.line, 0);
  }

  /** Focus a word of a line; of a line without any, the line itself. */
  private focusWord(line: Line, word: number): void {
    const item = this.rows.get(line)?.item;
    if (!item) return;
    const spans = item.querySelectorAll<HTMLElement>("[data-word]");
    if (!spans.length) {
      item.tabIndex = -1;
      return item.focus();
    }
    const wanted = spans[Math.min(word, spans.length - 1)];
    spans.forEach((span) => span.setAttribute("tabindex", span === wanted ? "0" : "-1"));
    wanted.focus();
  }

  private change(line: Line, word: number, typed = ""): void {
    if (!this.app.origin.live) return say(NO_MODEL); // the hint of the page says it, too
    const { item, words } = this.rows.get(line)!;
    const anchor = item.querySelectorAll<HTMLElement>("[data-word]")[word];
    const text = this.app.textOf(line, this.model);
    openChoice({
      anchor, typed, word: words[word].text, language: this.model.target_language,
      find: (signal) => this.app.origin.alternatives(this.model, line, text.slice(0, words[word].start).trimEnd(), signal),
      prefixOf: (other) => text.slice(0, words[word].start) + other,
      chosen: (prefix) => {
        this.focusAfter = { line, word: word + 1 };
        void this.app.retranslate(line, this.model, prefix).then(() => this.sayOutcome(line));
      },
      closed: () => this.focusWord(line, word), // the line may have been redrawn meanwhile
    });
  }

  private sayOutcome(line: Line): void {
    const { pending, error } = this.app.rendering(line, this.model);
    if (!pending && !error) say(`Translated again: ${this.app.textOf(line, this.model)}`); // an error says itself
  }

  private async copyAll(): Promise<string> {
    const space = isUnspaced(this.model.target_language) ? "" : " ";
    const textOf = (line: Line): string => this.app.textOf(line, this.model);
    await copy(this.app.paragraphs.map((group) => group.map(textOf).filter(Boolean).join(space)).join("\n"));
    return "The translation is on the clipboard.";
  }
}

/** A text with a span around each of its words. */
export function spansOf(text: string, words: readonly Word[]): (Node | string)[] {
  const parts: (Node | string)[] = [];
  let end = 0;
  words.forEach((word, index) => {
    parts.push(text.slice(end, word.start), h("span", { "data-word": index }, text.slice(word.start, word.end)));
    end = word.end;
  });
  return [...parts, text.slice(end)];
}
