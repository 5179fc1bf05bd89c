// Light and dark, and the colours of pictures.

import { interpolateViridis } from "d3-scale-chromatic";
import { store, stored } from "./origin";

export type Theme = "light" | "dark";
type Choice = "auto" | Theme;

const system = matchMedia("(prefers-color-scheme: dark)");

export function chosenTheme(): Choice {
  const found = stored("theme");
  return found === "light" || found === "dark" ? found : "auto";
}

export function theme(): Theme {
  return document.documentElement.dataset.theme as Theme;
}

/** Set the theme, and again whenever the system's changes. */
export function followTheme(changed: () => void): (choice: Choice) => void {
  const apply = (choice: Choice): void => {
    document.documentElement.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
    changed();
  };
  system.addEventListener("change", () => apply(chosenTheme()));
  apply(chosenTheme());
  return (choice) => {
    store("theme", choice); // which not every browser allows
    apply(choice);
  };
}

/** A colour of the style sheet. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const WEIGHTS: Record<Theme, string[]> = {
  light: ["#f1f4f8", "#c3d7ee", "#7fadde", "#3d7cc0", "#174f8f", "#082a57"],
  dark: ["#1d2128", "#1f3a5c", "#2a629c", "#4f97d6", "#9cccf5", "#eef7ff"],
};

/** Colours from little to much: one hue for weights, which are mostly near 0, and viridis for other magnitudes. */
export type Scale = (value: number) => string;

export function scale(kind: "weight" | "magnitude", low: number, high: number): Scale {
  const table = kind === "weight" ? weightTable(theme()) : magnitudeTable();
  const span = high > low ? high - low : 1;
  return (value) => table[Math.max(0, Math.min(255, Math.round((255 * (value - low)) / span)))];
}

const tables = new Map<string, string[]>();

function kept(name: string, make: (place: number) => string): string[] {
  const found = tables.get(name) ?? Array.from({ length: 256 }, (_, index) => make(index / 255));
  tables.set(name, found);
  return found;
}

const magnitudeTable = (): string[] => kept("magnitude", interpolateViridis);

function weightTable(which: Theme): string[] {
  const stops = WEIGHTS[which].map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return kept(which, (place) => {
    const at = place ** 0.65 * (stops.length - 1); // small weights differ visibly
    const below = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[below].map((from, index) => Math.round(from + (stops[below + 1][index] - from) * (at - below)));
    return `rgb(${mixed.join(",")})`;
  });
}
