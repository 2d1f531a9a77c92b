import { getSystemErrorMessage } from "node:util"

/** What the operating system refused, in words: never the path. */
export const systemFault = (cause: unknown): string => {
  const { code = "an unknown error", errno } = cause as NodeJS.ErrnoException
  return errno === undefined ? code : `${getSystemErrorMessage(errno)} (${code})`
}
