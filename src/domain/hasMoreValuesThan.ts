const [quote, comma, bracket, backslash, brace] = [0x22, 0x2c, 0x5b, 0x5c, 0x7b]

/**
 * Whether JSON text may have more than `max` values, counted by the commas, brackets and braces outside its strings. Reads
 * the text once and builds nothing: parsing and decoding cost time for each value.
 */
export const hasMoreValuesThan = (max: number, text: string): boolean => {
  let values = 1
  let isInString = false
  for (let at = 0; at < text.length && values <= max; at += 1) {
    const character = text.charCodeAt(at)
    if (character === quote) isInString = !isInString
    else if (isInString) at += character === backslash ? 1 : 0
    else if (character === comma || character === bracket || character === brace) values += 1
  }
  return values > max
}
