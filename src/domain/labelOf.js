/**
 * Masks any character that is not visible ASCII.
 *
 * @param {string} character
 */
const mask = (character) => (character >= "!" && character <= "~" ? character : "*")

/**
 * Masks a secret for display, as in `sk-...wxyz`: shows at most 7 characters, and only as many as leave at least 16
 * hidden (D35). `***` stands for an end that shows nothing. Plain JavaScript, because the owner's page loads this file
 * unchanged.
 *
 * @param {string} secret
 */
export const labelOf = (secret) => {
  // The ends of a long secret have as many characters as matter, and take no time.
  const characters = Array.from(secret.length > 128 ? secret.slice(0, 64) + secret.slice(-64) : secret)
  const shownCount = Math.max(0, Math.min(7, characters.length - 16))
  const suffixLength = Math.ceil(shownCount / 2)
  const prefixLength = shownCount - suffixLength
  const prefix = characters.slice(0, prefixLength).map(mask).join("")
  const suffix = characters
    .slice(characters.length - suffixLength)
    .map(mask)
    .join("")
  return `${prefix || "***"}...${suffix || "***"}`
}
