/** Shows control characters and Unicode's line ends as JSON escapes, so that no text can act on the terminal. */
export const printable = (text: string) =>
  text.replace(/[\p{Cc}\u2028\u2029]/gu, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`)
