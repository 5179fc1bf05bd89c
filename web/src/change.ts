// What opens at a word: other words in its place, and a field for one's own.

import { h } from "./dom";
import type { Alternative } from "./types";

export interface Change {
  anchor: HTMLElement;
  word: string;
  typed: string; // what the field begins with
  language: string;
  find: (signal: AbortSignal) => Promise<Alternative[]>;
  prefixOf: (typed: string) => string;
  chosen: (prefix: string) => void;
  closed: () => void;
}

let close: (() => void) | null = null;

/** Open the choice of another word; only one is open at a time. */
export function openChoice(change: Change): void {
  close?.();
  const list = h("ul", { role: "listbox", id: "alternatives", "aria-label": "Other words", lang: change.language });
  const note = h("p", { class: "hint", role: "status" }, "Looking for other words …");
  const field = h("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "alternatives", "aria-autocomplete": "list",
    "aria-label": `Another word than “${change.word}”: type one, or choose by the arrow keys`,
    placeholder: "Type a word, or choose", dir: "auto", autocomplete: "off", spellcheck: "false", lang: change.language,
  });
  field.value = change.typed;
  const box = h("div", { class: "popover", role: "dialog", "aria-label": `Another word than “${change.word}”` }, field, list, note);
  let options: Alternative[] = [];
  let fitting: Alternative[] = []; // what begins as typed
  let active = -1;
  const asking = new AbortController();

  const finish = (prefix?: string): void => {
    close = null;
    asking.abort();
    document.removeEventListener("pointerdown", outside);
    box.remove();
    change.anchor.removeAttribute("aria-expanded");
    if (prefix === undefined) change.closed();
    else change.chosen(prefix);
  };
  const outside = (event: Event): void => {
    if (!box.contains(event.target as Node)) finish();
  };
  const activate = (index: number): void => {
    active = index;
    list.querySelectorAll("li").forEach((item, place) => item.setAttribute("aria-selected", String(place === index)));
    if (index < 0) field.removeAttribute("aria-activedescendant");
    else {
      field.setAttribute("aria-activedescendant", `alternative-${index}`);
      list.children[index].scrollIntoView({ block: "nearest" });
    }
  };
  const render = (): void => {
    const begun = field.value.toLowerCase();
    fitting = options.filter(({ word }) => word.toLowerCase().startsWith(begun));
    list.replaceChildren(...fitting.map((option, index) => optionOf(option, index, () => finish(option.prefix))));
    activate(-1);
  };
  field.addEventListener("input", render);
  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return; // the keys choose among an input method's candidates
    if (event.key === "Escape") finish();
    else if (event.key === "ArrowDown") activate(Math.min(active + 1, fitting.length - 1));
    else if (event.key === "ArrowUp") activate(Math.max(active - 1, -1));
    else if (event.key === "Enter" && active >= 0) finish(fitting[active].prefix);
    else if (event.key === "Enter" && field.value.trim()) finish(change.prefixOf(field.value.trim()));
    else if (event.key === "Tab") finish();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  });
  document.addEventListener("pointerdown", outside);
  close = finish;
  change.anchor.setAttribute("aria-expanded", "true");
  document.body.append(box);
  place(box, change.anchor);
  field.focus();
  change.find(asking.signal).then(
    (found) => {
      options = found.filter(({ word }) => word);
      note.textContent = options.length ? "The rest is translated again from there." : "The model has no other word here.";
      render();
      place(box, change.anchor);
    },
    (error: Error) => (note.textContent = error.message),
  );
}

function optionOf({ word, log_probability, candidate, prefix }: Alternative, index: number, chosen: () => void): HTMLElement {
  const { text } = candidate;
  const rest = text.startsWith(prefix) ? text.slice(prefix.length) : ` (${text})`;
  return h("li", { role: "option", id: `alternative-${index}`, "aria-selected": "false", onclick: chosen },
    h("b", {}, word), h("span", { class: "rest" }, rest),
    h("span", { class: "number" }, `${(100 * Math.exp(log_probability)).toFixed(log_probability < -4.6 ? 1 : 0)}%`));
}

/** Under the word, or above it where there is no room; within the window. */
function place(box: HTMLElement, anchor: HTMLElement): void {
  if (!anchor.isConnected) return; // its line was redrawn meanwhile
  const at = anchor.getClientRects()[0] ?? anchor.getBoundingClientRect();
  const width = box.offsetWidth;
  const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8));
  const below = at.bottom + 6 + box.offsetHeight < innerHeight || at.top < box.offsetHeight;
  box.style.left = `${left + scrollX}px`;
  box.style.top = `${(below ? at.bottom + 6 : at.top - box.offsetHeight - 6) + scrollY}px`;
}
