// The view of the search: the beam as a tree, what was pruned and by how much, and the score of a text of one's own.

import type { App } from "./app";
import { Asking } from "./asking";
import { choice, h, isModified, say } from "./dom";
import type { View } from "./main";
import { savingButtons } from "./saving";
import { readable, shown } from "./tokens";
import { FATES, describe, pathTo, percent, treePicture, type Arrangement } from "./tree";
import type { Score, SearchNode, SearchTrace } from "./types";

export function searchView(app: App): View {
  const view = new SearchView(app);
  return { element: view.element, show: () => void view.show() };
}

class SearchView {
  readonly element = h("div", { class: "search-view" });
  private readonly asking = new Asking(this.element, () => (this.trace = null));
  private readonly stage: HTMLElement;
  private readonly details = h("aside", { class: "details", "aria-label": "The chosen hypothesis" });
  private readonly tables = h("div", { class: "tables" });
  private readonly note = h("p", { class: "hint" });
  private arrangement: Arrangement = "rank";
  private trace: SearchTrace | null = null;
  private own: Score | null = null;
  private prefix = ""; // what the search had to begin with
  private selected = 0;

  constructor(private readonly app: App) {
    this.stage = h("div", {
      class: "stage scroller", tabindex: "0", role: "application", "aria-roledescription": "tree of hypotheses",
      "aria-label": "Tree of the beam. Left and right arrows move along a hypothesis, up and down among those of a position.",
      onkeydown: (event: KeyboardEvent) => this.pressed(event),
      onclick: (event: Event) => {
        const node = (event.target as Element).closest<SVGElement>("[data-node]");
        if (node) this.choose(Number(node.dataset.node), false);
      },
    });
    const saving = savingButtons(() => this.asking.isWaiting ? null : this.trace && {
      name: "search", numbers: () => ({ search: this.trace, own: this.own }), svg: () => treePicture(this.drawn()),
    });
    const arrangement = choice("Order", [["rank", "by rank at each position"], ["tree", "as branches"]], "rank", (value) => {
      this.arrangement = value as Arrangement;
      if (this.trace) this.drawTree();
    });
    this.element.append(this.asking.message,
      h("div", { class: "figure" },
        h("div", { class: "row spread" }, arrangement, this.note, saving), this.stage,
        h("div", { class: "below-stage" }, this.details, this.tables)));
  }

  async show(): Promise<void> {
    const { app } = this;
    const { line, model } = app;
    if (!line.source.trim()) return this.asking.fail("Type a sentence above.");
    const { pending, prefix } = app.rendering(line, model);
    if (pending) return this.asking.wait();
    const question = JSON.stringify([model.name, line.place, line.source, prefix, line.own]);
    if (this.asking.isAsked(question)) return this.draw();
    const answer = async (signal: AbortSignal) => ({
      trace: await app.origin.search(model, line, prefix, signal),
      own: line.own ? await app.origin.score(model, line, line.own, signal) : null,
    });
    await this.asking.ask(question, answer, ({ trace, own }) => {
      [this.trace, this.own, this.prefix] = [trace, own, prefix];
      this.selected = trace.finished[0] ?? 0;
      this.draw();
    });
  }

  private drawn() {
    return { trace: this.trace!, arrangement: this.arrangement, selected: this.selected, own: this.own };
  }

  private draw(): void {
    const { trace } = this;
    if (!trace) return;
    this.drawTree();
    const count = (fate: SearchNode["fate"]): number => trace.nodes.filter((node) => node.fate === fate).length;
    const begun = this.prefix && `Begins with “${this.prefix}”, changed by hand. `;
    this.note.textContent = `${begun}Beam of ${trace.beam_size}: ${count("kept")} kept, ${count("finished")} finished, ${count("pruned")} pruned shown (−: behind the last that was kept).`;
    this.tables.replaceChildren(this.finishedTable(), ...this.ownTable());
  }

  /** What depends on the chosen hypothesis. */
  private drawTree(): void {
    const [left, top] = [this.stage.scrollLeft, this.stage.scrollTop];
    this.stage.replaceChildren(treePicture(this.drawn()));
    this.stage.scrollTo(left, top);
    this.details.replaceChildren(...this.nodeDetails());
  }

  private choose(id: number, spoken: boolean): void {
    this.selected = id;
    this.drawTree();
    const box = this.stage.querySelector(`[data-node="${id}"]`);
    if (spoken) box?.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (spoken) say(describe(this.trace!.nodes[id]));
  }

  private pressed(event: KeyboardEvent): void {
    if (!this.trace || isModified(event)) return;
    const { nodes } = this.trace;
    const at = nodes[this.selected];
    const beside = nodes.filter(({ position }) => position === at.position).sort((a, b) => a.rank - b.rank);
    const children = nodes.filter(({ parent }) => parent === at.id).sort((a, b) => a.rank - b.rank);
    const along = children.find(({ fate }) => fate === "kept" || fate === "finished") ?? children[0];
    const place = beside.indexOf(at);
    const next: Record<string, SearchNode | undefined> = {
      ArrowLeft: at.parent === null ? undefined : nodes[at.parent], ArrowRight: along, ArrowUp: beside[place - 1], ArrowDown: beside[place + 1],
      Home: nodes[0], End: nodes[this.trace.finished[0]],
    };
    if (!(event.key in next)) return;
    event.preventDefault();
    const found = next[event.key];
    if (found) this.choose(found.id, true);
  }

  private nodeDetails(): HTMLElement[] {
    const trace = this.trace!;
    const node = trace.nodes[this.selected];
    const pieces = pathTo(trace, node.id).slice(1).map((id) => trace.nodes[id].piece);
    const facts: [string, string][] = [
      ["Fate", node.fate === "pruned" ? `pruned, ${node.behind.toFixed(2)} behind` : FATES[node.fate]],
      ["Probability of the token", percent(node.token_log_probability)],
      ["Log-probability of the token", node.token_log_probability.toFixed(3)],
      ["Log-probability so far", node.log_probability.toFixed(3)],
      ["Score", node.score.toFixed(3)],
      ["Rank at its position", String(node.rank + 1)],
    ];
    return [h("h2", {}, node.parent === null ? "The beginning" : shown(node.piece)),
      h("p", { class: "so-far", lang: this.app.model.target_language }, readable(pieces) || "…"),
      ...(node.parent === null ? [] : [h("dl", {}, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))])];
  }

  private finishedTable(): HTMLElement {
    const { finished, translations, nodes, length_penalty, length_offset } = this.trace!;
    const length = length_offset ? `((${length_offset} + tokens) / ${length_offset + 1})` : "tokens";
    const rows = finished.map((id, place) =>
      h("tr", {}, h("td", { class: "text", lang: this.app.model.target_language },
        h("button", { type: "button", class: "quiet link", onclick: () => this.choose(id, true) }, translations[place] || "(empty)")),
        h("td", {}, nodes[id].score.toFixed(3)), h("td", {}, nodes[id].log_probability.toFixed(3)), h("td", {}, String(nodes[id].position + 1))));
    return table(`Finished, best first (score = log-probability / ${length}^${length_penalty})`, ["translation", "score", "log-probability", "tokens"], rows);
  }

  private ownTable(): HTMLElement[] {
    const { own } = this;
    if (!own) return this.app.origin.live ? [h("p", { class: "hint" }, "Type your own translation above to see its score beside the beam, token by token.")] : [];
    let sum = 0;
    const rows = own.tokens.map((token, place) => {
      const value = own.token_log_probabilities[place];
      sum += value;
      const first = own.alternatives?.[place]?.filter(({ piece }) => piece !== token).slice(0, 3) ?? [];
      const others = first.map(({ piece, log_probability }) => `${shown(piece)} ${percent(log_probability)}`).join(", ");
      return h("tr", { class: own.first_choices[place] ? null : "unlikely" }, h("td", { class: "text" }, shown(token)), h("td", {}, percent(value)),
        h("td", {}, value.toFixed(3)), h("td", {}, sum.toFixed(3)), h("td", { class: "text" }, others));
    });
    return [table(`Your own translation: score ${own.score.toFixed(3)}`, ["token", "probability", "log-probability", "so far", "the model's other choices"], rows)];
  }
}

/** A table that scrolls within itself; the head of a column stands as its cells do. */
export function table(caption: string, head: string[], rows: HTMLElement[]): HTMLElement {
  const heads = head.map((name, column) => h("th", { scope: "col", class: rows[0]?.children[column]?.className || null }, name));
  return h("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": caption },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows)));
}
