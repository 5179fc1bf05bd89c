// Pieces of the segmentation as words of a text.

export const SPACE = "▁";
const MARKS = new Set(["<s>", "</s>", "<pad>"]);

export interface Word {
  text: string;
  start: number; // in the text
  end: number;
  pieces: number[]; // their places among the tokens
}

/** A piece as a reader sees it. */
export function shown(piece: string): string {
  if (piece === SPACE) return "␣";
  return piece.replaceAll(SPACE, "");
}

const isWordly = (text: string): boolean => /[\p{L}\p{N}\p{M}]/u.test(text);

/** Groups of pieces that are a word or punctuation each; end marks belong to none. */
export function groupsOf(pieces: readonly string[]): number[][] {
  const marked = pieces.some((piece) => piece.startsWith(SPACE));
  const groups: number[][] = [];
  let last = "";
  pieces.forEach((piece, place) => {
    if (MARKS.has(piece)) return;
    const content = piece.replaceAll(SPACE, "");
    const begins = !marked || piece.startsWith(SPACE) || (last !== "" && isWordly(content) !== isWordly(last));
    if (begins || !groups.length) groups.push([place]);
    else groups[groups.length - 1].push(place);
    last = content;
  });
  return groups;
}

/** The words of a text with their places in it, found piece by piece; a piece that the text does not show has no width. */
export function wordsOf(text: string, pieces: readonly string[]): Word[] {
  const lower = text.toLowerCase();
  let cursor = 0;
  const words: Word[] = [];
  for (const group of groupsOf(pieces)) {
    const content = group.map((place) => pieces[place].replaceAll(SPACE, "")).join("").toLowerCase();
    while (cursor < text.length && /\s/.test(text[cursor])) cursor++;
    const found = content === "" ? -1 : lower.indexOf(content, cursor);
    if (found >= 0 && found - cursor <= 30) words.push(word(text, found, found + content.length, group));
    else if (content !== "") {
      const end = cursor + (text.slice(cursor).match(/^\S+/)?.[0].length ?? 0);
      words.push(word(text, cursor, end, group));
    }
    cursor = words.at(-1)?.end ?? cursor;
  }
  return words;
}

const word = (text: string, start: number, end: number, pieces: number[]): Word => ({
  text: text.slice(start, end),
  start,
  end,
  pieces,
});

/** How much each source word contributes to each target word: sums over source pieces, means over target pieces. */
export function wordAlignment(
  alignment: readonly (readonly number[])[],
  source: readonly Word[],
  target: readonly Word[],
): number[][] {
  return target.map(({ pieces }) =>
    source.map((word) => {
      let sum = 0;
      for (const t of pieces) for (const s of word.pieces) sum += alignment[t]?.[s] ?? 0;
      return sum / pieces.length;
    }),
  );
}

/** Which items of two lists are not in their longest common subsequence. */
export function differences<T>(left: readonly T[], right: readonly T[]): [Set<number>, Set<number>] {
  const table = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--)
      table[i][j] = left[i] === right[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const only: [Set<number>, Set<number>] = [new Set(left.keys()), new Set(right.keys())];
  for (let i = 0, j = 0; i < left.length && j < right.length; ) {
    if (left[i] === right[j]) {
      only[0].delete(i++);
      only[1].delete(j++);
    } else if (table[i + 1][j] >= table[i][j + 1]) i++;
    else j++;
  }
  return only;
}
