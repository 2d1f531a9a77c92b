import type { Answer } from "./RawConnection.ts"

/** All of an answer that a secret could be in. */
export const answerText = ({ body, headers }: Answer) =>
  [...Object.entries(headers).map(([name, value]) => `${name}: ${value}`), body].join("\n")
