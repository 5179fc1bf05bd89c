// The source text: typed into a field behind which its words stand, so that they can be marked; in a file, only read.

import type { App, Line } from "./app";
import { debounced, h } from "./dom";
import { wordsOf, type Word } from "./tokens";

/** A stretch of a line's source with how much of it is meant, from 0 to 1. */
export interface Marked {
  start: number;
  end: number;
  weight: number;
}

const PAUSE = 350; // milliseconds without a key, until what was typed is translated

export class SourceText {
  readonly element: HTMLElement;
  private readonly words = h("div", { class: "words" });
  private readonly field: HTMLTextAreaElement | null = null;
  private readonly rows = new Map<Line, { row: HTMLElement; words: Word[] }>();
  private readonly paragraphs = new Map<string, HTMLElement>(); // by their texts
  private current: Line | null = null; // whose row is marked

  constructor(
    private readonly app: App,
    private readonly meant: (line: Line, word: Word | null) => void,
  ) {
    if (!app.origin.live) {
      this.words.addEventListener("click", (event) => {
        const row = (event.target as Element).closest<HTMLElement>("[data-line]");
        if (row) app.look({ current: Number(row.dataset.line) });
      });
      this.element = h("div", { class: "sheet source" }, this.words);
    } else {
      this.field = this.createField();
      this.words.setAttribute("aria-hidden", "true");
      this.element = h("div", { class: "sheet source typed" }, this.words, this.field);
    }
    this.element.addEventListener("pointermove", (event) => this.pointed(event));
    this.element.addEventListener("pointerleave", () => meant(app.line, null));
    app.on("lines", () => this.render());
    app.on("place", () => this.renderPlace());
    app.on("line", (line) => this.renderLine(line));
    app.on("models", () => this.renderLanguage());
    this.renderLanguage();
    this.render();
  }

  private renderLanguage(): void {
    this.element.lang = this.app.model.source_language;
  }

  private createField(): HTMLTextAreaElement {
    const { app } = this;
    const field = h("textarea", {
      "aria-label": "Source text",
      placeholder: "Type or paste text",
      spellcheck: "false",
      autocapitalize: "off",
      oninput: () => {
        app.typed();
        this.render(field.value);
        translate.later();
      },
    });
    const translate = debounced(PAUSE, () => void this.app.setText(field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        translate.later();
        translate.now();
      }
    });
    document.addEventListener("selectionchange", () => document.activeElement === field && this.caretMoved(field));
    return field;
  }

  private caretMoved(field: HTMLTextAreaElement): void {
    const { lines, text } = this.app;
    if (text !== field.value) return; // not translated yet
    let [current, place] = [0, field.selectionStart];
    for (; current < lines.length - 1; current++) {
      const { length } = lines[current].source + lines[current].after;
      if (place < length) break;
      place -= length;
    }
    if (current !== this.app.current) this.app.look({ current });
    const word = this.rows.get(this.app.line)?.words.find(({ start, end }) => start <= place && place <= end);
    this.meant(this.app.line, word ?? null);
  }

  private pointed(event: PointerEvent): void {
    const under = document.elementsFromPoint(event.clientX, event.clientY);
    const span = under.find((each): each is HTMLElement => each instanceof HTMLElement && each.dataset.word !== undefined);
    const row = span?.closest<HTMLElement>("[data-line]");
    const line = row && this.app.lines[Number(row.dataset.line)];
    if (line) this.meant(line, this.rows.get(line)?.words[Number(span!.dataset.word)] ?? null);
    else this.meant(this.app.line, null);
  }

  /** Mark stretches of a line, and nothing elsewhere. */
  mark(line: Line, marked: readonly Marked[]): void {
    this.words.querySelectorAll<HTMLElement>("[data-weight]").forEach((span) => {
      delete span.dataset.weight;
      span.style.removeProperty("--weight");
    });
    const found = this.rows.get(line);
    if (!found) return;
    const spans = found.row.querySelectorAll<HTMLElement>("[data-word]");
    found.words.forEach((word, index) => {
      const over = marked.filter(({ start, end }) => start < word.end && word.start < end);
      const weight = Math.max(0, ...over.map((each) => each.weight));
      if (weight < 0.04 || !spans[index]) return;
      spans[index].dataset.weight = weight.toFixed(2);
      spans[index].style.setProperty("--weight", weight.toFixed(3));
    });
  }

  private render(typed?: string): void {
    const { field, app } = this;
    if (typed !== undefined) {
      // What is being typed is not translated yet: words come with the translation.
      const known = (each: string): Node | undefined => this.paragraphs.get(each)?.cloneNode(true);
      this.words.replaceChildren(...typed.split("\n").map((each) => known(each) ?? h("div", {}, each || "\u200b")));
      return;
    }
    if (field && field.value !== app.text) field.value = app.text;
    this.rows.clear();
    this.paragraphs.clear();
    let number = 0;
    this.words.replaceChildren(...app.paragraphs.map((group) => {
      const text = group.map(({ source, after }) => source + after).join("").replace("\n", "");
      const paragraph = h("div", {}, ...group.flatMap((line) => [this.createRow(line, number++), line.after.replace("\n", "")]));
      this.paragraphs.set(text, paragraph);
      return paragraph;
    }));
    this.renderPlace();
    if (field && document.activeElement === field) this.caretMoved(field);
  }

  private renderPlace(): void {
    if (this.current) this.markCurrent(this.current, false);
    if (this.current !== this.app.line) this.mark(this.app.line, []); // of another line
    this.current = this.app.line;
    this.markCurrent(this.current, this.app.lines.length > 1);
  }

  private markCurrent(line: Line, current: boolean): void {
    this.rows.get(line)?.row.classList.toggle("current", current);
  }

  private renderLine(line: Line): void {
    const found = this.rows.get(line);
    if (!found || found.words.length || !found.row.isConnected) return;
    found.row.replaceWith(this.createRow(line, Number(found.row.dataset.line)));
    if (line === this.current) this.renderPlace();
  }

  private createRow(line: Line, number: number): HTMLElement {
    const tokens = this.app.models.map((model) => this.app.rendering(line, model).translation?.source_tokens).find(Boolean);
    const words = tokens ? wordsOf(line.source, tokens, this.app.model.source_language) : [];
    const row = h("span", { "data-line": number }, ...spansOf(line.source, words));
    if (!line.source) row.textContent = "\u200b"; // a line of its height
    this.rows.set(line, { row, words });
    return row;
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
