// Where answers come from: a server, or the document that a file carries.

import type { Cell } from "./strips";
import type {
  Alternative, Alternatives, CellAnswer, Comparison, Explorations, Explored, Inspection, Limits, Model, Score, SearchTrace, Translation,
} from "./types";

/** A sentence to ask about. */
export interface Sentence {
  source: string;
  place: number | null; // among the sentences of a file, where a source may come twice
}

export interface Origin {
  readonly live: boolean;
  readonly models: Model[];
  /** The sentences of each line. */
  sentences(model: Model, lines: readonly string[]): Promise<string[][]>;
  /** Translate lines; each is told when it is ready. */
  translate(model: Model, lines: Sentence[], ready: Ready, signal: AbortSignal): Promise<void>;
  /** Translate from a beginning on, whose last word is finished. */
  continued(model: Model, line: Sentence, prefix: string, signal: AbortSignal): Promise<Translation>;
  alternatives(model: Model, line: Sentence, prefix: string, signal: AbortSignal): Promise<Alternative[]>;
  inspect(model: Model, line: Sentence, target: string | null, signal: AbortSignal): Promise<Inspection>;
  cell(model: Model, line: Sentence, target: string | null, cell: Cell, signal: AbortSignal): Promise<CellAnswer>;
  /** The search for a translation that has to begin with a prefix; empty: with anything. */
  search(model: Model, line: Sentence, prefix: string, signal: AbortSignal): Promise<SearchTrace>;
  score(model: Model, line: Sentence, target: string, signal: AbortSignal): Promise<Score>;
  compare(models: Model[], line: Sentence, target: string | null, signal: AbortSignal): Promise<Comparison>;
}

export type Ready = (line: number, outcome: Translation | Error) => void;

const CANDIDATES = 5;
const [LINES, BYTES] = [200, 500_000]; // of a request's texts, at most, however much the server takes
const MAY_END = /[.!?…][^\s.!?…]*\s+\S|[。！？｡]./u; // what a line of several sentences has
const REMEMBERED = 24_000_000; // characters of answers: two of the largest, or thousands of small ones

/** A server, asked under addresses relative to the page's own. */
export class Server implements Origin {
  readonly live = true;
  private readonly answers = new Map<string, { answer: unknown; size: number }>(); // the oldest first
  private remembered = 0;
  private key = stored("key");
  private isKeyDeclined = false; // who has given none is not asked again

  private limits: Limits = { lines: LINES, body_bytes: 2 * BYTES, num_best: CANDIDATES };

  private constructor(readonly models: Model[]) {}

  static async connect(): Promise<Server> {
    const server = new Server([]);
    const { models, limits } = await server.ask<{ models: Model[]; limits: Limits }>("v1/models");
    server.models.push(...models);
    server.limits = limits;
    return server;
  }

  async sentences(model: Model, lines: readonly string[]): Promise<string[][]> {
    const asked = [...new Set(lines.filter((line) => MAY_END.test(line)))];
    const known = new Map<string, string[]>();
    for (const texts of asked.length ? requestsOf(asked, this.limits) : []) {
      const { sentences } = await this.ask<{ sentences: string[][] }>("v1/sentences", { model: model.name, texts });
      texts.forEach((text, number) => known.set(text, sentences[number]));
    }
    return lines.map((line) => known.get(line) ?? [line]);
  }

  async translate(model: Model, lines: Sentence[], ready: Ready, signal: AbortSignal): Promise<void> {
    let first = 0;
    for (const texts of requestsOf(lines.map(({ source }) => source), this.limits)) {
      const begin = first;
      await this.translateTexts(model, texts, (line, outcome) => ready(begin + line, outcome), signal);
      first += texts.length;
    }
  }

  private async translateTexts(model: Model, texts: string[], ready: Ready, signal: AbortSignal): Promise<void> {
    const num_best = Math.min(model.beam_size, this.atMost(CANDIDATES));
    const body = { model: model.name, texts, num_best, alignments: model.has_alignments };
    const response = await this.fetch("v1/translate/stream", body, signal);
    let line = 0;
    for await (const text of linesOf(response)) {
      const answer = JSON.parse(text);
      ready(line++, "error" in answer ? new Error(answer.error) : answer);
    }
    for (; line < texts.length; line++) ready(line, new Error("The server ended the answer early."));
  }

  async continued(model: Model, { source }: Sentence, prefix: string, signal: AbortSignal): Promise<Translation> {
    const body = { model: model.name, source, prefix, count: this.atMost(CANDIDATES), alignments: model.has_alignments };
    const { source_tokens, alternatives } = await this.ask<Alternatives>("v1/alternatives", body, signal);
    const candidates = alternatives.map(({ candidate }) => candidate).sort((a, b) => b.score - a.score);
    return { source, source_tokens, translation: candidates[0]?.text ?? prefix, candidates };
  }

  async alternatives(model: Model, { source }: Sentence, prefix: string, signal: AbortSignal): Promise<Alternative[]> {
    const body = { model: model.name, source, prefix, count: this.atMost(8) };
    return (await this.ask<Alternatives>("v1/alternatives", body, signal)).alternatives;
  }

  /** As many translations of a line, or as many as the server gives. */
  private atMost(count: number): number {
    return Math.min(count, this.limits.num_best);
  }

  inspect(model: Model, { source }: Sentence, target: string | null, signal: AbortSignal): Promise<Inspection> {
    return this.ask("v1/inspect", { model: model.name, source, target }, signal);
  }

  cell(model: Model, { source }: Sentence, target: string | null, { s, t }: Cell, signal: AbortSignal): Promise<CellAnswer> {
    return this.ask("v1/inspect/cell", { model: model.name, source, target, source_position: s, target_position: t }, signal);
  }

  search(model: Model, { source }: Sentence, prefix: string, signal: AbortSignal): Promise<SearchTrace> {
    return this.ask("v1/search", { model: model.name, source, prefix, pruned: 5 }, signal);
  }

  async score(model: Model, { source }: Sentence, target: string, signal: AbortSignal): Promise<Score> {
    const body = { model: model.name, sources: [source], targets: [target], alternatives: this.atMost(CANDIDATES) };
    return (await this.ask<{ scores: Score[] }>("v1/score", body, signal)).scores[0];
  }

  compare(models: Model[], { source }: Sentence, target: string | null, signal: AbortSignal): Promise<Comparison> {
    return this.ask("v1/compare", { models: models.map(({ name }) => name), source, targets: target ? [target] : [] }, signal);
  }

  /** The answer to a question, remembered as long as there is room. */
  private async ask<T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    const question = path + JSON.stringify(body);
    const known = this.answers.get(question);
    if (known) return known.answer as T;
    const text = await (await this.fetch(path, body, signal)).text();
    const answer = JSON.parse(text) as T;
    this.remember(question, answer, text.length);
    return answer;
  }

  private remember(question: string, answer: unknown, size: number): void {
    this.remembered += size - (this.answers.get(question)?.size ?? 0);
    this.answers.set(question, { answer, size });
    for (const [oldest, { size: freed }] of this.answers) {
      if (this.remembered <= REMEMBERED || oldest === question) break;
      this.answers.delete(oldest);
      this.remembered -= freed;
    }
  }

  private async fetch(path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
    const { key } = this;
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (key) headers.Authorization = `Bearer ${key}`;
    const method = body === undefined ? "GET" : "POST";
    let response: Response;
    try {
      response = await fetch(path, { method, headers, body: body === undefined ? null : JSON.stringify(body), signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Error("The server cannot be reached. Is it still running?");
    }
    if (response.ok) return response;
    const { error } = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
    if (!response.headers.has("WWW-Authenticate")) throw new Error(error);
    if (this.hasAnotherKey(key, error)) return this.fetch(path, body, signal);
    throw new Error(`${error} To give one, reload this page.`);
  }

  /** Whether there is another key than the refused one: given meanwhile, for another request, or now. */
  private hasAnotherKey(refused: string | null, reason: string): boolean {
    if (this.key !== refused) return true;
    if (this.isKeyDeclined) return false;
    const given = window.prompt(`${reason}\nAPI key:`)?.trim();
    this.isKeyDeclined = !given;
    if (!given) return false;
    this.key = given;
    store("key", given);
    return true;
  }
}

/** Texts in parts that a server takes at a time; one that is too long goes by itself, for the server to refuse. */
function requestsOf(texts: readonly string[], limits: Limits): string[][] {
  const requests: string[][] = [];
  const most = { lines: Math.min(LINES, limits.lines), bytes: Math.min(BYTES, limits.body_bytes / 2) };
  let size = Infinity;
  for (const text of texts) {
    const long = new TextEncoder().encode(JSON.stringify(text)).length;
    size += long;
    if (size > most.bytes || requests.at(-1)!.length === most.lines) {
      requests.push([]);
      size = long;
    }
    requests.at(-1)!.push(text);
  }
  return requests;
}

async function* linesOf(response: Response): AsyncGenerator<string> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest) yield rest;
}

export const NO_MODEL = "To change words, the model is needed: see this page by jointnmt serve.";

const FORMAT = 1; // of documents, as docs/explore.md describes it

/** The document of a file that `jointnmt explore` wrote. */
export class Carried implements Origin {
  readonly live = false;
  readonly models: Model[];

  constructor(readonly document: Explorations) {
    const { format, generator } = document;
    if (format !== FORMAT) throw new Error(`This page cannot read the file's document: it is of format ${format}, by ${generator}.`);
    this.models = document.models;
  }

  async sentences(_: Model, lines: readonly string[]): Promise<string[][]> {
    return lines.map((line) => [line]);
  }

  async translate(model: Model, lines: Sentence[], ready: Ready): Promise<void> {
    lines.forEach((line, number) => ready(number, this.of(model, line).translation));
  }

  async continued(): Promise<Translation> {
    throw new Error(NO_MODEL);
  }

  async alternatives(): Promise<Alternative[]> {
    throw new Error(NO_MODEL);
  }

  async inspect(model: Model, line: Sentence, target: string | null): Promise<Inspection> {
    const { inspection, target_inspection } = this.of(model, line);
    const isOwn = target?.trim() === this.sentence(line).target?.trim();
    const found = target === null || target === inspection?.translation ? inspection : isOwn ? target_inspection : null;
    if (!found) throw new Error("This file does not hold the grid of that translation.");
    return found;
  }

  async cell(): Promise<CellAnswer> {
    throw new Error("This file does not hold the attention of single cells: it would be too large.");
  }

  async search(model: Model, line: Sentence): Promise<SearchTrace> {
    const { search } = this.of(model, line);
    if (!search) throw new Error("This file does not hold the search for this sentence.");
    return search;
  }

  async score(model: Model, line: Sentence, target: string): Promise<Score> {
    const { score } = this.of(model, line);
    if (score?.target === target) return score;
    const found = (await this.compare([], line)).scores[model.name]?.find((each) => each.target === target);
    if (!found) throw new Error("To score another text, the model is needed: see this page by jointnmt serve.");
    return found;
  }

  async compare(_: Model[], line: Sentence): Promise<Comparison> {
    return this.sentence(line).comparison;
  }

  private sentence({ place }: Sentence) {
    const found = place === null ? undefined : this.document.sentences[place];
    if (!found) throw new Error("This file does not hold that sentence.");
    return found;
  }

  private of(model: Model, line: Sentence): Explored {
    const found = this.sentence(line).by_model[model.name];
    if (!found) throw new Error(`This file does not hold that sentence by ${model.name}.`);
    return found;
  }
}

/** What an earlier visit has left in the browser, if it lets us look. */
export function stored(name: string): string | null {
  try {
    return (name === "key" ? sessionStorage : localStorage).getItem(`jointnmt.${name}`);
  } catch {
    return null;
  }
}

export function store(name: string, value: string): void {
  try {
    (name === "key" ? sessionStorage : localStorage).setItem(`jointnmt.${name}`, value);
  } catch {
    // Without storage it lasts as long as the page.
  }
}
