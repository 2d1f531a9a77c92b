const word = () => ((Math.random() * 0x1_0000_0000) >>> 0).toString(16).padStart(8, "0")

/** An id of so many words of 8 hexadecimal digits, never all zero. It is no secret: anybody may guess it. */
export const randomHex = (words: number): string => {
  let id = word()
  for (let n = 1; n < words; n += 1) id += word()
  return /^0+$/.test(id) ? randomHex(words) : id
}
