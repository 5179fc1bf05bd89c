// The numbers behind a picture as JSON, the picture as SVG or PNG.

import { h, say } from "./dom";

export interface Picture {
  name: string; // of the file
  numbers: () => unknown;
  svg: (() => SVGSVGElement) | null;
}

const PNG_SCALE = 2;

/** Buttons that copy and save a picture. */
export function savingButtons(picture: () => Picture | null): HTMLElement {
  const button = (text: string, label: string, action: (picture: Picture) => Promise<string>): HTMLButtonElement =>
    actionButton(text, label, async () => {
      const shown = picture();
      if (!shown) throw new Error("there is no picture yet.");
      return action(shown);
    });
  return h("div", { class: "saving", role: "group", "aria-label": "Copy or save" },
    button("Copy JSON", "Copy the numbers as JSON", async ({ numbers }) => {
      await copy(JSON.stringify(numbers(), null, 1));
      return "The numbers are on the clipboard.";
    }),
    button("SVG", "Save the picture as SVG", async (shown) => {
      save(`${shown.name}.svg`, new Blob([svgText(shown)], { type: "image/svg+xml" }));
      return "Saved.";
    }),
    button("PNG", "Save the picture as PNG", async (shown) => {
      save(`${shown.name}.png`, await png(shown));
      return "Saved.";
    }),
  );
}

/** A button that shows whether its action was done; what the action returns is said, or why it failed. */
export function actionButton(text: string, label: string, action: () => Promise<string>): HTMLButtonElement {
  const press = async (): Promise<void> => {
    const [mark, outcome] = await action().then((done) => ["✓", done], (error: Error) => ["✗", `Not done: ${error.message}`]);
    say(outcome);
    button.title = outcome;
    button.textContent = `${mark} ${text}`;
    setTimeout(() => {
      button.title = label;
      button.textContent = text;
    }, mark === "✓" ? 1200 : 4000);
  };
  const button = h("button", { type: "button", class: "quiet", title: label, onclick: () => void press() }, text);
  return button;
}

export async function copy(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text).then(() => (text = ""), () => undefined);
    if (!text) return;
  }
  // Files, and pages without TLS, may have no clipboard of their own.
  const focused = document.activeElement;
  const field = h("textarea", { class: "unseen", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!copied) throw new Error("the browser does not let the page use the clipboard.");
}

function save(name: string, content: Blob): void {
  const address = URL.createObjectURL(content);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function svgText({ svg }: Picture): string {
  if (!svg) throw new Error("there is no picture here.");
  const element = svg();
  return new XMLSerializer().serializeToString(element);
}

async function png(picture: Picture): Promise<Blob> {
  const text = svgText(picture);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const scale = Math.min(PNG_SCALE, Math.sqrt(1.6e8 / (image.width * image.height)), 16000 / Math.max(image.width, image.height));
  const canvas = h("canvas", { width: Math.round(image.width * scale), height: Math.round(image.height * scale) });
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large."))), "image/png"));
}
