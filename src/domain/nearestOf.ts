/** How many characters have to be added, removed or replaced to make one text of the other. */
const distance = (one: string, other: string): number => {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (const [index, character] of Array.from(one).entries()) {
    const above = row
    row = [index + 1]
    for (const [at, wanted] of Array.from(other).entries()) {
      const replaced = (above[at] ?? 0) + (character === wanted ? 0 : 1)
      row.push(Math.min(replaced, (above[at + 1] ?? 0) + 1, (row[at] ?? 0) + 1))
    }
  }
  return row[other.length] ?? 0
}

/** The word that a text is nearly, in any case: at most two characters and less than half of it are different. */
export const nearestOf = (text: string, words: ReadonlyArray<string>): string | undefined => {
  const near = words
    .filter(({ length }) => Math.abs(length - text.length) <= 2)
    .map((word) => ({ word, steps: distance(text.toLowerCase(), word.toLowerCase()) }))
    .filter(({ steps }) => steps <= 2 && 2 * steps < text.length)
  return near.sort((one, other) => one.steps - other.steps)[0]?.word
}
