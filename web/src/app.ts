// What all views share: the lines, their translations by each model, and which of them is looked at.

import type { Origin } from "./origin";
import type { Model, Translation } from "./types";

/** What one model makes of one line. */
export interface Rendering {
  translation: Translation | null;
  chosen: number; // of its candidates
  prefix: string; // what the translation has to begin with
  past: string[]; // earlier prefixes
  error: string | null;
  pending: boolean;
}

/** A line of the source text. */
export interface Line {
  source: string;
  own: string; // a translation given by the reader
  byModel: Map<string, Rendering>;
}

/** lines: other lines; line: one has another translation; place: another line, model or own text is looked at;
 * models: other models are shown; theme: light or dark. */
type Event = "lines" | "line" | "place" | "models" | "theme";

export class App {
  lines: Line[] = [];
  current = 0;
  model: Model;
  readonly hidden = new Set<string>();
  private readonly listeners: [Event, (line: Line) => void][] = [];
  private readonly running = new Map<string, AbortController>();

  constructor(readonly origin: Origin) {
    this.model = origin.models[0];
    this.setText("");
  }

  on(event: Event, listener: (line: Line) => void): void {
    this.listeners.push([event, listener]);
  }

  emit(event: Event, line = this.line): void {
    for (const [wanted, listener] of this.listeners) if (wanted === event) listener(line);
  }

  get line(): Line {
    return this.lines[this.current];
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
      found = { translation: null, chosen: 0, prefix: "", past: [], error: null, pending: false };
      line.byModel.set(model.name, found);
    }
    return found;
  }

  /** The translation that is looked at: of a model's candidates the chosen one. */
  textOf(line = this.line, model = this.model): string {
    const { translation, chosen } = this.rendering(line, model);
    return translation?.candidates[chosen]?.text ?? "";
  }

  /** Another source text; lines that stay keep their translations. */
  setText(text: string): void {
    const old = this.lines;
    this.lines = text.split("\n").map((source, place) => {
      const near = old[place]?.source === source ? place : old.findIndex((line) => line.source === source);
      const found = near < 0 ? undefined : old[near];
      if (found) old[near] = { ...found, source: "\n" }; // each is taken once
      return found ?? { source, own: "", byModel: new Map() };
    });
    this.current = Math.min(this.current, this.lines.length - 1);
    this.emit("lines");
    this.translateMissing();
  }

  /** The current line's source, as typed beside a picture. */
  setSource(source: string): void {
    const text = this.lines.map((line, place) => (place === this.current ? source : line.source)).join("\n");
    this.setText(text);
  }

  look(place: Partial<{ current: number; model: Model; own: string }>): void {
    if (place.current !== undefined) this.current = Math.max(0, Math.min(place.current, this.lines.length - 1));
    if (place.model) this.model = place.model;
    if (place.own !== undefined) this.line.own = place.own.trim();
    if (place.model) this.emit("models");
    this.emit("place");
    this.translateMissing();
  }

  /** Show a model beside the others, or hide it. */
  toggle(model: Model, shown: boolean): void {
    if (shown) this.hidden.delete(model.name);
    else this.hidden.add(model.name);
    this.emit("models");
    this.translateMissing();
  }

  /** Translate what has no translation yet. */
  translateMissing(): void {
    for (const model of new Set([...this.shownModels, this.model])) void this.translateMissingBy(model);
  }

  private async translateMissingBy(model: Model): Promise<void> {
    const missing = this.lines.filter((line) => {
      const { translation, error } = this.rendering(line, model);
      return line.source.trim() && !translation && !error;
    });
    this.running.get(model.name)?.abort();
    if (!missing.length) return;
    const control = new AbortController();
    this.running.set(model.name, control);
    await this.translate(model, missing, control);
  }

  /** Translate one line anew, with another beginning. */
  async retranslate(line: Line, model: Model, prefix: string, past?: string[]): Promise<void> {
    const rendering = this.rendering(line, model);
    rendering.past = past ?? [...rendering.past, rendering.prefix];
    rendering.prefix = prefix;
    await this.translate(model, [line], new AbortController(), prefix);
  }

  /** Translate lines, or one line from a beginning on. */
  private async translate(model: Model, lines: Line[], control: AbortController, prefix = ""): Promise<void> {
    const renderings = lines.map((line) => this.rendering(line, model));
    const update = (number: number, changes: Partial<Rendering>): void => {
      Object.assign(renderings[number], changes);
      this.emit("line", lines[number]);
    };
    lines.forEach((_, number) => update(number, { pending: true, error: null }));
    const ready = (number: number, outcome: Translation | Error): void => {
      if (control.signal.aborted) return;
      const failed = outcome instanceof Error;
      update(number, failed
        ? { error: outcome.message, pending: false }
        : { translation: outcome, chosen: 0, pending: false });
    };
    try {
      if (prefix) ready(0, await this.origin.continued(model, lines[0].source, prefix));
      else await this.origin.translate(model, lines.map(({ source }) => source), ready, control.signal);
    } catch (error) {
      if (control.signal.aborted) return;
      renderings.forEach(({ pending }, number) => pending && update(number, { error: String((error as Error).message), pending: false }));
    }
  }
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
