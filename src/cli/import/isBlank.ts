/** Whether a line has nothing but blanks: space, tab and the ends of lines. */
export const isBlank = (line: Uint8Array): boolean =>
  line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d)
