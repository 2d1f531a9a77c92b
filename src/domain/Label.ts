const mask = (character: string) => (character >= "!" && character <= "~" ? character : "*")

/** Masks a secret for display: shows at most 7 characters, and none unless at least 16 stay hidden (D35). */
export const labelOf = (secret: string): string => {
  const characters = Array.from(secret)
  const shown = Math.max(0, Math.min(7, characters.length - 16))
  const suffix = Math.ceil(shown / 2)
  const prefix = shown - suffix
  const first = characters.slice(0, prefix).map(mask).join("")
  const last = characters
    .slice(characters.length - suffix)
    .map(mask)
    .join("")
  return `${first || "***"}...${last || "***"}`
}

/**
 * Matches a label that cannot rule out a secret: it hides everything, or it may be that of JSON, which can have the
 * secret inside. JSON with text in it starts and ends with a bracket, a brace or a quotation mark, or with white space,
 * which a label masks. The source means the same to PostgreSQL.
 */
export const inconclusiveLabel = /^[*{["].*([*}"]|\])$/
