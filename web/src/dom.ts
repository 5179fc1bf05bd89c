// Elements in one expression.

type Child = Node | string | null | undefined | false;
type Properties = Record<string, unknown>;

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element; `on...` are listeners, null and false leave an attribute out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return filled(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled<E extends Element>(element: E, properties: Properties, children: Child[]): E {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

const present = (children: Child[]): (Node | string)[] =>
  children.filter((child): child is Node | string => child instanceof Node || typeof child === "string");

let choices = 0;

/** A labelled `<select>`. */
export function choice(
  label: string,
  options: readonly Option[],
  value: string,
  changed: (value: string) => void,
): HTMLElement {
  const id = `choice-${++choices}`;
  const select = h("select", { id, onchange: () => changed(select.value) });
  const field = h("div", { class: "field" }, h("label", { for: id }, label), select);
  offer(field, options, value);
  return field;
}

type Option = readonly [value: string, text: string];

/** Let a labelled `<select>` offer something else, in groups or not; it is hidden where there is nothing to choose. */
export function offer(field: HTMLElement, options: readonly Option[] | Record<string, readonly Option[]>, value: string): void {
  const select = field.querySelector("select")!;
  const items = (all: readonly Option[]): HTMLElement[] => all.map(([key, text]) => h("option", { value: key }, text));
  const offered = JSON.stringify(options);
  if (select.dataset.offered !== offered) {
    select.dataset.offered = offered;
    select.replaceChildren(...(options instanceof Array
      ? items(options)
      : Object.entries(options).map(([label, each]) => h("optgroup", { label }, ...items(each)))));
  }
  select.value = value;
  field.hidden = select.length < 2;
}

/** Change an element's content; the focus stays on the part (`data-part`) that has it. Returns whether it was lost. */
export function redrawn(element: HTMLElement, ...content: Child[]): boolean {
  const focused = document.activeElement;
  const part = element.contains(focused) && focused!.closest<HTMLElement>("[data-part]")?.dataset.part;
  element.replaceChildren(...present(content));
  if (!part) return false;
  const found = element.querySelector<HTMLElement>(`[data-part="${part}"]`);
  found?.focus();
  return !found;
}

/** Whether a key is pressed with another that makes it the browser's or the system's. */
export const isModified = (event: KeyboardEvent): boolean => event.altKey || event.ctrlKey || event.metaKey;

/** An action that waits until calls have ceased for a while; `now` does at once what still waits. */
export function debounced(milliseconds: number, action: () => void): { later: () => void; now: () => void } {
  let timer: number | null = null;
  const act = (): void => {
    timer = null;
    action();
  };
  const stop = (): boolean => {
    if (timer === null) return false;
    clearTimeout(timer);
    return true;
  };
  return {
    later: () => {
      stop();
      timer = window.setTimeout(act, milliseconds);
    },
    now: () => {
      if (stop()) act();
    },
  };
}

const spoken = h("div", { class: "unseen", role: "status", "aria-live": "polite" });

/** Say something to screen readers. */
export function say(text: string): void {
  if (!spoken.isConnected) document.body.append(spoken);
  spoken.textContent = text;
}
