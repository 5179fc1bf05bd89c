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
  element.append(...children.filter((child): child is Node | string => child instanceof Node || typeof child === "string"));
  return element;
}

let choices = 0;

/** A labelled `<select>`. */
export function choice(
  label: string,
  options: readonly (readonly [value: string, text: string])[],
  value: string,
  changed: (value: string) => void,
): HTMLElement {
  const id = `choice-${++choices}`;
  const select = h("select", { id, onchange: () => changed(select.value) });
  for (const [key, text] of options) select.append(h("option", { value: key, selected: key === value }, text));
  return h("div", { class: "field" }, h("label", { for: id }, label), select);
}

/** Called when calls have ceased for a while. */
export function debounced(milliseconds: number, action: () => void): () => void {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(action, milliseconds);
  };
}

const spoken = h("div", { class: "unseen", role: "status", "aria-live": "polite" });

/** Say something to screen readers. */
export function say(text: string): void {
  if (!spoken.isConnected) document.body.append(spoken);
  spoken.textContent = text;
}
