import { closeSync, openSync } from "node:fs"

/** Uses what is at a path, open for reading, and closes it whatever happens. */
export const whileOpen = <A>(path: string, use: (descriptor: number) => A): A => {
  const descriptor = openSync(path, "r")
  try {
    return use(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
