// The source text: typed into a field behind which it stands again, so that words can be marked; in a file, only read.

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
const LEAST = 0.04; // of the weights that are marked

export class SourceText {
  readonly element: HTMLElement;
  private readonly marks = h("div", { class: "marks" });
  /** Each paragraph as one text: elements in it would round its width, and break lines unlike the field. */
  private readonly words = h("div", { class: "words" });
  private readonly field: HTMLTextAreaElement | null = null;
  private readonly places = new Map<Line, { paragraph: Element; start: number }>();
  private current: Line | null = null;
  private marked: { line: Line; stretches: readonly Marked[] } | null = null;

  constructor(
    private readonly app: App,
    private readonly meant: (line: Line, word: Word | null) => void,
  ) {
    if (!app.origin.live) {
      this.words.addEventListener("click", (event) => {
        const found = [...this.places].find(([, { paragraph }]) => paragraph === event.target);
        if (found) app.look({ current: app.lines.indexOf(found[0]) });
      });
      this.element = h("div", { class: "sheet source" }, this.marks, this.words);
    } else {
      this.field = this.createField();
      this.words.setAttribute("aria-hidden", "true");
      this.element = h("div", { class: "sheet source typed" }, this.marks, this.words, this.field);
    }
    new ResizeObserver(() => this.draw()).observe(this.words);
    this.element.addEventListener("pointermove", (event) => this.pointed(event));
    this.element.addEventListener("pointerleave", () => meant(app.line, null));
    app.on("lines", () => this.render());
    app.on("place", () => this.renderPlace());
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
        this.renderText(field.value.split("\n")); // without marks: it is not translated yet
        this.draw();
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
    const word = this.wordsIn(this.app.line).find(({ start, end }) => start <= place && place <= end);
    this.meant(this.app.line, word ?? null);
  }

  private pointed({ clientX: x, clientY: y }: PointerEvent): void {
    const under = document.elementsFromPoint(x, y);
    const isUnder = (line: Line, start: number, end: number): boolean =>
      this.boxesOf(line, start, end).some((box) => box.left <= x && x < box.right && box.top <= y && y < box.bottom);
    for (const [line, { paragraph }] of this.places) {
      if (!under.includes(paragraph) || !isUnder(line, 0, line.source.length)) continue;
      const word = this.wordsIn(line).find(({ start, end }) => isUnder(line, start, end));
      if (word) return this.meant(line, word);
    }
    this.meant(this.app.line, null);
  }

  /** Mark stretches of a line, and nothing elsewhere. */
  mark(line: Line, stretches: readonly Marked[]): void {
    this.marked = { line, stretches };
    this.draw();
  }

  private render(): void {
    const { field, app } = this;
    if (field && field.value !== app.text) field.value = app.text;
    const { paragraphs } = app;
    const texts = paragraphs.map((group) => group.map(({ source, after }) => source + after).join(""));
    this.renderText(texts.map((text) => text.replace(/\n$/, "")));
    paragraphs.forEach((group, index) => {
      let start = 0;
      for (const line of group) {
        this.places.set(line, { paragraph: this.words.children[index], start });
        start += line.source.length + line.after.length;
      }
    });
    this.renderPlace();
    if (field && document.activeElement === field) this.caretMoved(field);
  }

  private renderText(paragraphs: readonly string[]): void {
    this.places.clear();
    this.marked = null;
    this.words.replaceChildren(...paragraphs.map((text) => h("div", {}, text || "\u200b"))); // of a line's height
  }

  private renderPlace(): void {
    if (this.current !== this.app.line) this.marked = null; // of another line
    this.current = this.app.line;
    this.draw();
  }

  /** Draw the marks, and which line is looked at. */
  private draw(): void {
    const { app, marked } = this;
    const markOf = (box: DOMRect, properties: Record<string, unknown>, weight = 0): HTMLElement => {
      const { left, top } = this.marks.getBoundingClientRect();
      const place = `left: ${box.left - left}px; top: ${box.top - top}px`;
      const size = `width: ${box.width}px; height: ${box.height}px`;
      return h("span", { ...properties, style: `${place}; ${size}; --weight: ${weight.toFixed(3)}` });
    };
    const isAmong = app.paragraphs.some((group) => group.length > 1 && group.includes(app.line));
    const current = isAmong ? this.boxesOf(app.line, 0, app.line.source.length) : [];
    const marks = current.map((box) => markOf(box, { class: "current" }));
    marked?.stretches.forEach(({ start, end, weight }, word) => {
      if (weight < LEAST) return;
      for (const box of this.boxesOf(marked.line, start, end))
        marks.push(markOf(box, { "data-word": word, "data-weight": weight.toFixed(2) }, weight));
    });
    this.marks.replaceChildren(...marks);
    const looked = app.lines.length > 1 && this.places.get(app.line)?.paragraph;
    for (const each of this.words.children) each.classList.toggle("looked-at", each === looked);
  }

  /** Where a stretch of a line stands: a box wherever it is broken. */
  private boxesOf(line: Line, start: number, end: number): DOMRect[] {
    const place = this.places.get(line);
    if (!place) return []; // what is being typed is not translated yet
    const range = document.createRange();
    range.setStart(place.paragraph.firstChild!, place.start + start);
    range.setEnd(place.paragraph.firstChild!, place.start + end);
    return [...range.getClientRects()];
  }

  private wordsIn(line: Line): Word[] {
    const { models, model } = this.app;
    const tokens = models.map((each) => this.app.rendering(line, each).translation?.source_tokens).find(Boolean);
    return tokens ? wordsOf(line.source, tokens, model.source_language) : [];
  }
}
