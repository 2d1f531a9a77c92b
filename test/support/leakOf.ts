import { formsOf } from "./formsOf.ts"

const windows = (secret: string) =>
  Array.from({ length: Math.max(0, secret.length - 8) }, (_, start) => secret.slice(start, start + 9))

/** Any 9 characters in a row of a secret that a text holds, in whatever case, or all of it in another encoding. */
export const leakOf = (text: string, secrets: ReadonlyArray<string>): string | undefined => {
  const lower = text.toLowerCase()
  return secrets.find(
    (secret) =>
      windows(secret.toLowerCase()).some((window) => lower.includes(window)) ||
      formsOf(secret).some((form) => text.includes(form))
  )
}
