import { getSystemErrorMessage } from "node:util"

/** Describes an error of the operating system, without the path. */
export const systemFault = (cause: unknown): string => {
  const { code = "an unknown error", errno } = cause as NodeJS.ErrnoException
  return errno === undefined ? code : `${getSystemErrorMessage(errno)} (${code})`
}
