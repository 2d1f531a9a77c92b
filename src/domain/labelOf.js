/** @param {string} character */
const mask = (character) => (character >= "!" && character <= "~" ? character : "*")

/**
 * Masks a secret for display: shows at most 7 characters, and none unless at least 16 stay hidden (D35). The owner's page
 * runs this file as it is.
 *
 * @param {string} secret
 */
export const labelOf = (secret) => {
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
