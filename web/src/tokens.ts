// Pieces of the segmentation as words of a text.

export const SPACE = "▁";
const MARKS = new Set(["<s>", "</s>", "<pad>"]);
const UNKNOWN = "<unk>";
/** Languages written without spaces: each piece counts as a word, as for the server. */
const UNSPACED = new Set(["zh", "ja", "th", "lo", "km", "my"]);
const REACH = 30; // characters that no piece shows, at most, before one that is looked for

export interface Word {
  text: string;
  start: number; // in the text
  end: number;
  pieces: number[]; // their places among the tokens
}

/** Whether pieces mark spaces: each begins a word, or may end one; else each is a word. */
const areMarked = (pieces: readonly string[]): boolean =>
  pieces.some((piece) => piece.startsWith(SPACE) || piece.endsWith(SPACE));

/** Whether there is a space between a piece and the one before it. */
const followsSpace = (piece: string, before: string): boolean =>
  piece.startsWith(SPACE) || (before.endsWith(SPACE) && before !== SPACE);

/** A piece as a reader sees it. */
export function shown(piece: string): string {
  if (piece === SPACE) return "␣";
  return piece.replaceAll(SPACE, "");
}

/** Pieces as a text. */
export function readable(pieces: readonly string[]): string {
  const told = pieces.filter((piece) => !MARKS.has(piece));
  return told.join(areMarked(told) ? "" : " ").replaceAll(SPACE, " ").trim();
}

/** Whether a language is written without spaces, between sentences too. */
export const isUnspaced = (language: string): boolean => UNSPACED.has(language.split(/[-_]/)[0].toLowerCase());

const isWordly = (text: string): boolean => /[\p{L}\p{N}\p{M}]/u.test(text);

/** Groups of pieces that are a word or punctuation each; end marks belong to none. */
export function groupsOf(pieces: readonly string[], language: string): number[][] {
  const single = isUnspaced(language) || !areMarked(pieces);
  const groups: number[][] = [];
  let before = "";
  pieces.forEach((piece, place) => {
    if (MARKS.has(piece)) return;
    const [content, last] = [piece, before].map((each) => each.replaceAll(SPACE, ""));
    const begins = single || followsSpace(piece, before) || (last !== "" && isWordly(content) !== isWordly(last));
    if (begins || !groups.length) groups.push([place]);
    else groups[groups.length - 1].push(place);
    before = piece;
  });
  return groups;
}

/** What of a text a group of pieces is: texts that follow each other, with unknown ones between them. */
interface Pattern {
  parts: string[];
  spaced: boolean; // it begins after a space
}

function patternOf(group: readonly number[], pieces: readonly string[]): Pattern {
  const content = group.map((place) => pieces[place]).join("").replaceAll(SPACE, "");
  return { parts: content.split(UNKNOWN).map(folded), spaced: followsSpace(pieces[group[0]], pieces[group[0] - 1] ?? "") };
}

/** The text in lower case, letter by letter: its length stays the same. */
function folded(text: string): string {
  return text.replace(/\p{Lu}/gu, (letter) => {
    const lower = letter.toLowerCase();
    return lower.length === letter.length ? lower : letter;
  });
}

/** Where a pattern stands in a text from a place on; open: an unknown piece follows. */
function find(text: string, { parts }: Pattern, from: number): { start: number; end: number; open: boolean } | null {
  let [start, end] = [parts[0] ? -1 : from, from];
  for (const part of parts) {
    if (!part) continue;
    const found = text.indexOf(part, end);
    if (found < 0 || found - end > REACH) return null;
    if (start < 0) start = found;
    end = found + part.length;
  }
  return { start, end, open: !parts.at(-1) };
}

/** Where what was not found ends: where the next pattern begins, or a word of it if that was not found either. */
function endOfUnknown(text: string, next: readonly Pattern[], from: number): number {
  for (const [index, { parts: [first], spaced }] of next.entries()) {
    if (!first) continue;
    let found = text.indexOf(first, from);
    while (spaced && found > 0 && !/\s/.test(text[found - 1])) found = text.indexOf(first, found + 1);
    if (found < 0 || (!spaced && found - from > 2 * REACH)) continue;
    const space = index ? text.slice(from, found).search(/\s/) : -1;
    return space < 0 ? found : from + space;
  }
  const space = next.length ? text.slice(from).search(/\s/) : -1;
  return space < 0 ? text.length : from + space;
}

/** The words of a text with their places in it, found piece by piece; of pieces that the text does not show there are none. */
export function wordsOf(text: string, pieces: readonly string[], language: string): Word[] {
  const lower = folded(text);
  const groups = groupsOf(pieces, language).filter((group) => group.some((place) => pieces[place] !== SPACE));
  const patterns = groups.map((group) => patternOf(group, pieces));
  const words: Word[] = [];
  let cursor = 0;
  groups.forEach((group, index) => {
    cursor += text.slice(cursor).match(/^\s*/)![0].length;
    const found = find(lower, patterns[index], cursor) ?? { start: cursor, end: cursor - 1, open: true };
    let { start, end } = found;
    // An unknown piece stands for a letter at least; a piece that is not found may be one that the text does not show.
    if (found.open) end = endOfUnknown(lower, patterns.slice(index + 1), Math.min(text.length, end + 1));
    end = start + text.slice(start, end).trimEnd().length;
    if (end <= start) return;
    words.push(word(text, start, end, group));
    cursor = end;
  });
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
