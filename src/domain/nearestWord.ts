/** Levenshtein distance: the fewest characters to insert, delete or replace to get `target` from `source`. */
const editDistance = (source: string, target: string): number => {
  // `row[n]` is the distance from the characters of `source` so far to the first n of `target`.
  let row = Array.from({ length: target.length + 1 }, (_, column) => column)
  for (const [index, sourceCharacter] of Array.from(source).entries()) {
    const previousRow = row
    row = [index + 1]
    for (const [column, targetCharacter] of Array.from(target).entries()) {
      const replacing = (previousRow[column] ?? 0) + (sourceCharacter === targetCharacter ? 0 : 1)
      const deleting = (previousRow[column + 1] ?? 0) + 1
      const inserting = (row[column] ?? 0) + 1
      row.push(Math.min(replacing, deleting, inserting))
    }
  }
  return row[target.length] ?? 0
}

/**
 * The word with the fewest edits from `text`, ignoring case; undefined if every word needs more than two, or at least
 * half as many as `text` has characters.
 */
export const nearestWord = (text: string, words: ReadonlyArray<string>): string | undefined => {
  const nearby = words
    .filter(({ length }) => Math.abs(length - text.length) <= 2)
    .map((word) => ({ word, edits: editDistance(text.toLowerCase(), word.toLowerCase()) }))
    .filter(({ edits }) => edits <= 2 && 2 * edits < text.length)
  return nearby.sort((one, other) => one.edits - other.edits)[0]?.word
}
