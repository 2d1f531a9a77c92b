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
