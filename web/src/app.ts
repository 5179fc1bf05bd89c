// What all views share: the lines, their translations by each model, and which of them is looked at.

import type { Origin, Sentence } from "./origin";
import type { Model, Translation } from "./types";

/** What one model makes of one line. */
export interface Rendering {
  translation: Translation | null;
  chosen: number; // of its candidates
  prefix: string; // what the translation has to begin with
  past: string[]; // earlier prefixes
  error: string | null;
  pending: AbortController | null; // the request whose answer is waited for
}

/** A sentence of the source text, which may share its line with others. */
export interface Line extends Sentence {
  after: string; // what stands between it and the next one: white space, or with a line break
  own: string; // a translation given by the reader
  byModel: Map<string, Rendering>;
}

/** Lines that stand together, and what stands between them and the next one. */
export interface Part {
  lines: readonly Line[];
  after: string;
}

/** lines: other lines; line: one has another translation by a model; place: another line, model or own text is looked
 * at; models: other models are shown; theme: light or dark. */
type Event = "lines" | "line" | "place" | "models" | "theme";
type Listener = (line: Line, model: Model) => void;

/** A request for many lines by one model. */
interface Running {
  control: AbortController;
  lines: Line[];
}

export class App {
  lines: Line[] = [];
  current = 0;
  model: Model;
  readonly hidden = new Set<string>();
  /** Told when a request for lines has ended. */
  translated: (lines: readonly Line[], model: Model) => void = () => undefined;
  private readonly listeners: [Event, Listener][] = [];
  private readonly running = new Map<string, Running>();
  private changes = 0; // of the text

  constructor(readonly origin: Origin) {
    this.model = origin.models[0];
    this.setSentences([{ source: "", after: "" }]);
  }

  on(event: Event, listener: Listener): void {
    this.listeners.push([event, listener]);
  }

  emit(event: Event, line = this.line, model = this.model): void {
    for (const [wanted, listener] of this.listeners) if (wanted === event) listener(line, model);
  }

  get line(): Line {
    return this.lines[this.current];
  }

  /** The whole source text. */
  get text(): string {
    return this.lines.map(({ source, after }) => source + after).join("");
  }

  /** The sentences of each line of the text. */
  get paragraphs(): Line[][] {
    const found: Line[][] = [[]];
    for (const line of this.lines) {
      found.at(-1)!.push(line);
      if (line.after.endsWith("\n")) found.push([]);
    }
    return found.filter((group) => group.length);
  }

  /** The models of the language pair that is looked at. */
  get models(): Model[] {
    return this.origin.models.filter((each) => pairOf(each) === pairOf(this.model));
  }

  get shownModels(): Model[] {
    return this.models.filter(({ name }) => !this.hidden.has(name));
  }

  rendering(line = this.line, model = this.model): Rendering {
    let found = line.byModel.get(model.name);
    if (!found) {
      found = { translation: null, chosen: 0, prefix: "", past: [], error: null, pending: null };
      line.byModel.set(model.name, found);
    }
    return found;
  }

  /** The translation that is looked at: of a model's candidates the chosen one. */
  textOf(line = this.line, model = this.model): string {
    const { translation, chosen } = this.rendering(line, model);
    return translation?.candidates[chosen]?.text ?? "";
  }

  /** Another source text; sentences that stay keep their translations, and are tried again if they failed. */
  async setText(text: string): Promise<void> {
    const change = ++this.changes;
    const lines = text.split("\n");
    const cut = await this.origin.sentences(this.model, lines).catch(() => lines.map((line) => [line])); // the next request says why
    if (change === this.changes) this.setSentences(placed(lines, cut));
  }

  /** The text is being changed: what was asked about an earlier one is no longer wanted. */
  typed(): void {
    this.changes++;
  }

  private setSentences(sentences: readonly { source: string; after: string }[]): void {
    const old = this.lines;
    this.setLines(sentences.map(({ source, after }, place) => {
      const near = old[place]?.source === source ? place : old.findIndex((line) => line.source === source);
      const found = near < 0 ? undefined : old[near];
      if (!found) return { source, after, place: null, own: "", byModel: new Map() };
      old[near] = { ...found, source: "\n" }; // each is taken once
      return Object.assign(found, { after });
    }));
  }

  /** The sentences of a file. */
  open(sentences: readonly { source: string; target: string | null }[]): void {
    this.setLines(sentences.map(({ source, target }, place) => {
      const after = place < sentences.length - 1 ? "\n" : "";
      return { source, after, place, own: target ?? "", byModel: new Map() };
    }));
  }

  private setLines(lines: Line[]): void {
    this.changes++;
    this.lines = lines;
    this.current = Math.min(this.current, lines.length - 1);
    for (const { byModel } of lines)
      for (const [name, { error, prefix }] of byModel) if (error && !prefix) byModel.delete(name); // a prefix can be undone
    this.translateMissing();
    this.emit("lines");
  }

  /** Another source in place of a part, as typed beside a picture; it may be several sentences. The reader's own
   * translation stays beside a single one. Returns the part that it became; null if the text has changed meanwhile. */
  async setSource(part: Part, source: string): Promise<Part | null> {
    const change = ++this.changes;
    const [cut] = await this.origin.sentences(this.model, [source]).catch(() => [[source]]);
    if (change !== this.changes) return null;
    const isThere = part.lines.length && part.lines.every((line) => this.lines.includes(line));
    const { lines: old, after } = isThere ? part : partOf(this.line);
    const sentences = placed([source], [cut]);
    const own = sentences.length === 1 ? old[0].own : "";
    const found = sentences.map(({ source, after }, place) =>
      old[place]?.source === source ? Object.assign(old[place], { after, own }) : { source, after, place: null, own, byModel: new Map() });
    found.at(-1)!.after += after;
    const first = this.lines.indexOf(old[0]);
    this.setLines([...this.lines.slice(0, first), ...found, ...this.lines.slice(first + old.length)]);
    return { lines: found, after };
  }

  look(place: Partial<{ current: number; model: Model; own: string }>): void {
    if (place.current !== undefined) this.current = Math.max(0, Math.min(place.current, this.lines.length - 1));
    if (place.own !== undefined) this.line.own = place.own.trim();
    if (place.model) {
      this.model = place.model;
      this.translateMissing();
      this.emit("models");
    }
    this.emit("place");
  }

  /** Show a model beside the others, or hide it. */
  toggle(model: Model, shown: boolean): void {
    if (shown) this.hidden.delete(model.name);
    else this.hidden.add(model.name);
    this.translateMissing();
    this.emit("models");
  }

  /** Translate what has no translation yet; the caller announces what is under way, once for all lines. */
  private translateMissing(): void {
    for (const model of new Set([...this.shownModels, this.model])) void this.translateMissingBy(model);
  }

  private async translateMissingBy(model: Model): Promise<void> {
    const missing = this.lines.filter((line) => {
      const { translation, error } = this.rendering(line, model);
      return line.source.trim() && !translation && !error;
    });
    const running = this.running.get(model.name);
    const isAnswered = (line: Line): boolean => this.rendering(line, model).pending === running?.control;
    if (running && missing.length && missing.every(isAnswered) && isWanted(running, this.lines)) return;
    running?.control.abort();
    this.running.delete(model.name);
    if (!missing.length) return;
    const control = new AbortController();
    const mine = { control, lines: missing };
    this.running.set(model.name, mine);
    await this.translate(model, missing, control);
    if (this.running.get(model.name) !== mine) return;
    this.running.delete(model.name);
    this.translated(missing, model);
  }

  /** Translate one line again, with another beginning; a pending answer is dropped. */
  async retranslate(line: Line, model: Model, prefix: string, past?: string[]): Promise<void> {
    const rendering = this.rendering(line, model);
    if (rendering.pending !== this.running.get(model.name)?.control) rendering.pending?.abort();
    rendering.past = past ?? [...rendering.past, rendering.prefix];
    rendering.prefix = prefix;
    const answer = this.translate(model, [line], new AbortController(), prefix);
    this.emit("line", line, model);
    await answer;
  }

  /** Translate lines, or one line from a beginning on. */
  private async translate(model: Model, lines: Line[], control: AbortController, prefix = ""): Promise<void> {
    const renderings = lines.map((line) => this.rendering(line, model));
    renderings.forEach((rendering) => Object.assign(rendering, { pending: control, error: null }));
    const ready = (number: number, outcome: Translation | Error): void => {
      if (renderings[number].pending !== control) return; // something else has been asked meanwhile
      const found = outcome instanceof Error ? { error: outcome.message } : { translation: outcome, chosen: 0 };
      Object.assign(renderings[number], found, { pending: null });
      this.emit("line", lines[number], model);
    };
    try {
      if (prefix) ready(0, await this.origin.continued(model, lines[0], prefix, control.signal));
      else await this.origin.translate(model, lines, ready, control.signal);
    } catch (error) {
      if (!control.signal.aborted) lines.forEach((_, number) => ready(number, error as Error));
    }
  }
}

/** Sentences with what stands after each; the white space before the first of a line belongs to it. */
function placed(lines: readonly string[], cut: readonly string[][]): { source: string; after: string }[] {
  return lines.flatMap((line, number) => {
    const ends: number[] = [];
    const starts = cut[number].map((sentence) => {
      const start = line.indexOf(sentence, ends.at(-1) ?? 0);
      ends.push(start + sentence.length);
      return start;
    });
    const isWhole = !starts.length || starts.includes(-1);
    const found = isWhole ? [{ source: line, after: "" }] : ends.map((end, place) => ({
      source: line.slice(place ? starts[place] : 0, end),
      after: line.slice(end, starts[place + 1] ?? line.length),
    }));
    if (number < lines.length - 1) found.at(-1)!.after += "\n";
    return found;
  });
}

export function partOf(line: Line): Part {
  return { lines: [line], after: line.after };
}

/** Whether all lines of a request are still there. */
function isWanted(running: Running, lines: readonly Line[]): boolean {
  const present = new Set(lines);
  return running.lines.every((line) => present.has(line));
}

export const pairOf = (model: Model): string => `${model.source_language} → ${model.target_language}`;

/** A language's name in English. */
export function languageName(code: string): string {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
